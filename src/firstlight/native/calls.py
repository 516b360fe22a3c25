"""Instructions from tensors: which numbers and addresses each operation hands to the library."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor

from firstlight.native.instruction import Instruction, Op, instruction
from firstlight.native.weights import WeightFormat

LANES = 16
"""Outputs of a panel, and float32 values of a vector."""

SPLIT = 128
LONGEST_SPLIT = 1024
MOST_SPLITS = 32
"""A context is attended to in at most so many splits, as far as none gets longer than a kernel has
room for."""
LARGEST_HEAD = 512
LARGEST_SEGMENT_HEAD = 512
"""Columns of a head that ``source/segments.h`` has room for."""
FEWEST_ROWS = 8
"""Rows of a request from which on they are computed in tiles; see ``source/tiles.h``."""


def rows_of(x: Tensor) -> tuple[int, int] | None:
    """(rows, stride of a row) of a tensor whose last axis is contiguous; None if rows lie unevenly.

    Axes of one element may stand anywhere. A single number has no rows.
    """
    if x.ndim == 0:
        return None
    rows = prod(x.shape[:-1])
    if x.numel() == 0:
        return rows, x.shape[-1]
    if x.shape[-1] > 1 and x.stride(-1) != 1:
        return None
    axes = [(n, s) for n, s in zip(x.shape[:-1], x.stride()[:-1], strict=True) if n != 1]
    for (_, outer), (n, inner) in pairwise(axes):
        if outer != n * inner:
            return None
    return rows, axes[-1][1] if axes else x.shape[-1]


def lie_alike(a: Tensor, b: Tensor) -> bool:
    """Whether rows of both lie evenly and equally far apart."""
    return rows_of(a) is not None and rows_of(a) == rows_of(b)


def _even(x: Tensor) -> tuple[int, int]:
    found = rows_of(x)
    if found is None:
        raise ValueError(f"rows of strides {x.stride()} lie unevenly")
    return found


def linear_call(
    x: Tensor, weight: Tensor, bias: Tensor | None, format: int, out: Tensor
) -> Instruction:
    """``out[rows, N] = x[rows, K] w^T + bias``."""
    (rows, ldx), (_, ldy) = _even(x), _even(out)
    numbers = (rows, x.shape[-1], out.shape[-1], ldx, ldy)
    return instruction(
        Op.LINEAR, (x, weight, bias, out), numbers, dtype=x.dtype, kind=WeightFormat(format)
    )


def rms_norm_call(x: Tensor, weight: Tensor, eps: float, offset: bool, out: Tensor) -> Instruction:
    """RMSNorm of rows."""
    (rows, ldx), (_, ldy) = _even(x), _even(out)
    numbers = (rows, x.shape[-1], ldx, ldy)
    return instruction(
        Op.RMS_NORM, (x, weight, out), numbers, (eps,), dtype=x.dtype, kind=int(offset)
    )


def rotate_call(
    x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, eps: float, offset: bool,
    out: Tensor,
) -> Instruction:  # fmt: skip
    """Heads ``[rows, heads, dim]`` normalised, if there is a weight, and turned."""
    rows, heads, dim = out.shape
    numbers = (rows, heads, dim, x.stride(0), _even(cos)[1])
    tensors = (x, cos, sin, weight, out)
    return instruction(Op.ROTATE, tensors, numbers, (eps,), dtype=x.dtype, kind=int(offset))


def gate_call(x: Tensor, kind: int, out: Tensor) -> Instruction:
    """``act(x[:, :width]) * x[:, width:]``."""
    (rows, ldx), (_, ldy) = _even(x), _even(out)
    numbers = (rows, out.shape[-1], ldx, ldy)
    return instruction(Op.GATE, (x, out), numbers, dtype=x.dtype, kind=kind)


def activate_call(x: Tensor, kind: int, out: Tensor) -> Instruction:
    """``act(x)``."""
    (rows, ldx), (_, ldy) = _even(x), _even(out)
    numbers = (rows, x.shape[-1], ldx, ldy)
    return instruction(Op.ACTIVATE, (x, out), numbers, dtype=x.dtype, kind=kind)


def add_call(a: Tensor, b: Tensor, out: Tensor) -> Instruction | None:
    """``a + b`` of equal shapes; None where rows lie unevenly."""
    found = [pair for t in (a, b, out) if (pair := rows_of(t)) is not None]
    if a.shape != b.shape or a.shape != out.shape or len(found) < 3:
        return None
    numbers = (found[0][0], a.shape[-1], *(stride for _, stride in found))
    return instruction(Op.ADD, (a, b, out), numbers, dtype=a.dtype)


def attention_calls(arguments: Sequence[Any], scratch: Tensor) -> Sequence[Instruction]:
    """Store the rows' keys and values, attend split by split or in tiles, join the splits.

    Args:
        arguments: those of ``firstlight::attention``.
        scratch: float32, at least :func:`scratch_floats` of it.
    """
    q, k, v, k_pool, v_pool, write_locations, page_table, attention_rows = arguments[:8]
    block_bounds, out, scale, window, last_only = arguments[8:]
    requests, max_pages = page_table.shape
    kv_heads, key_dim, value_dim = k.shape[1], q.shape[2], v.shape[2]
    split, splits = splits_of(max_pages * k_pool.shape[1])
    store = instruction(
        Op.STORE_KV,
        (k, v, k_pool, v_pool, write_locations),
        (
            k.shape[0], kv_heads, key_dim, value_dim, k.stride(0), k.stride(1), v.stride(0),
            v.stride(1), *k_pool.stride()[1:3], *v_pool.stride()[1:3],
        ),
        dtype=q.dtype,
    )  # fmt: skip
    numbers = (
        q.shape[0], kv_heads, q.shape[1] // kv_heads, key_dim, value_dim, q.stride(0), q.stride(1),
        *k_pool.stride()[1:3], *v_pool.stride()[1:3], requests, max_pages, k_pool.shape[1], split,
        splits,
    )  # fmt: skip
    tensors = (q, k_pool, v_pool, page_table, attention_rows, block_bounds, scratch, out)
    ops = [Op.ATTEND, Op.MERGE_SPLITS]
    if not last_only and q.shape[0] >= FEWEST_ROWS:
        ops.append(Op.ATTEND_TILES)
    kind = int(last_only)
    return (
        store,
        *(
            instruction(op, tensors, numbers, (scale, window), dtype=q.dtype, kind=kind)
            for op in ops
        ),
    )


def splits_of(max_context: int) -> tuple[int, int]:
    """(keys of a split, splits) for contexts of up to ``max_context``."""
    split = min(max(SPLIT, -(-max_context // MOST_SPLITS)), LONGEST_SPLIT)
    return split, -(-max_context // split)


def scratch_floats(rows: int, heads: int, value_dim: int, max_context: int) -> int:
    """Float32 values that partial results take: values, padded to whole vectors, and two more."""
    wide = -(-value_dim // LANES) * LANES + LANES
    return rows * heads * splits_of(max_context)[1] * wide


def can_attend(dtype: torch.dtype, key_dim: int, value_dim: int) -> bool:
    """Whether the kernel's fixed buffers hold such heads."""
    known = dtype in (torch.float32, torch.bfloat16)
    return known and key_dim % 2 == 0 and max(key_dim, value_dim) <= LARGEST_HEAD


def can_attend_segments(dtype: torch.dtype, key_dim: int) -> bool:
    """Whether the kernel takes heads of ``key_dim`` columns: an even number, as pairs are met."""
    known = dtype in (torch.float32, torch.bfloat16)
    return known and key_dim % 2 == 0 and 0 < key_dim <= LARGEST_SEGMENT_HEAD
