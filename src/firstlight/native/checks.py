"""What the kernels can be called with: they read at addresses, so a wrong shape must not pass."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from firstlight.native import calls
from firstlight.native.weights import BLOCK, WeightFormat

DTYPES = (torch.float32, torch.bfloat16)
LARGEST_ROTATED = 1024
"""Columns of a head that ``source/elementwise.h`` has room for."""

_ACTIVATIONS = ("SiLU", "GELU by tanh", "GELU", "quick GELU")
_KINDS = ", ".join(f"{kind} ({name})" for kind, name in enumerate(_ACTIVATIONS))

_BYTES = {
    WeightFormat.FLOAT32: 4 * BLOCK,
    WeightFormat.BFLOAT16: 2 * BLOCK,
    WeightFormat.INT8: 2 + BLOCK,
    WeightFormat.INT4: 4 + BLOCK // 2,
}
"""Of one output's block of 32 values."""


def panel_bytes(format: WeightFormat, k: int) -> int:
    """Bytes of sixteen outputs with ``k`` inputs each."""
    return calls.LANES * k * _BYTES[format] // BLOCK


def check_linear(x: Tensor, weight: Tensor, bias: Tensor | None, format: int, n: int) -> None:
    """Arguments of ``firstlight::linear``.

    Raises:
        ValueError: a type, shape or size that does not fit the others.
    """
    _activations("linear", x)
    kind, k = WeightFormat(format), x.shape[-1]
    if kind.has_codes:
        _want(k % BLOCK == 0, "linear", "columns of x", k, "a multiple of {}", BLOCK)
    else:
        plain = DTYPES[kind]
        _want(x.dtype is plain, "linear", "x", x, "{}, as the weight", plain)
        _want(k % 2 == 0, "linear", "columns of x", k, "an even number")
    size = -(-n // calls.LANES) * panel_bytes(kind, k)
    good = weight.dtype is torch.uint8 and weight.is_contiguous() and weight.numel() == size
    of = "{} bytes of uint8: {} outputs of {} inputs"
    _want(good, "linear", "weight", weight, of, size, n, k)
    _matches("linear", "bias", bias, x.dtype, n)


def check_rms_norm(x: Tensor, weight: Tensor, offset: bool) -> None:
    """Arguments of ``firstlight::rms_norm``; raises ValueError."""
    _activations("rms_norm", x)
    _matches("rms_norm", "weight", weight, torch.float32 if offset else x.dtype, x.shape[-1])


def check_rotate(
    x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, dim: int, offset: bool
) -> None:
    """Arguments of ``firstlight::rotate``; raises ValueError."""
    _activations("rotate", x)
    good = 0 < dim <= LARGEST_ROTATED and dim % 2 == 0
    _want(good, "rotate", "head_dim", dim, "an even number up to {}", LARGEST_ROTATED)
    good = x.ndim == 2 and x.shape[1] % dim == 0 and (x.shape[1] == 1 or x.stride(1) == 1)
    _want(good, "rotate", "x", x, "contiguous rows of heads of {} columns", dim)
    for name, table in (("cos", cos), ("sin", sin)):
        rows = prod(table.shape[:-1])
        good = table.dtype is x.dtype and table.shape[-1] == dim and rows == x.shape[0]
        _want(good, "rotate", name, table, "{} [{}, {}]", x.dtype, x.shape[0], dim)
    dtype = torch.float32 if offset else x.dtype
    _matches("rotate", "weight", weight, dtype, x.shape[1] // dim, dim)


def check_gate(x: Tensor, kind: int) -> None:
    """Arguments of ``firstlight::gate``; raises ValueError."""
    _activations("gate", x)
    k = x.shape[-1]
    _want(k % 2 == 0, "gate", "columns of x", k, "gate and up, equally many")
    _want(kind in range(len(_ACTIVATIONS)), "gate", "kind", kind, "{}", _KINDS)


def check_activate(x: Tensor, kind: int) -> None:
    """Arguments of ``firstlight::activate``; raises ValueError."""
    _activations("activate", x)
    _want(kind in range(len(_ACTIVATIONS)), "activate", "kind", kind, "{}", _KINDS)


def check_attend(
    q: Tensor, k: Tensor, v: Tensor, k_pool: Tensor, v_pool: Tensor, write_locations: Tensor,
    page_table: Tensor, attention_rows: Tensor, block_bounds: Tensor | None, out: Tensor,
) -> None:  # fmt: skip
    """Tensors of ``firstlight::attend_rows``, as :mod:`firstlight.attention` has them.

    Raises:
        ValueError: heads that the kernels have no room for, or tensors that lie otherwise.
    """
    dims = (q.shape[2], v.shape[2])
    known = "float32 or bfloat16, heads of up to {} columns, keys of even many"
    good = calls.can_attend(q.dtype, *dims)
    _want(good, "attend_rows", "q", q, known, calls.LARGEST_HEAD)
    heads, kv_heads = q.shape[1], k.shape[1]
    good = kv_heads > 0 and heads % kv_heads == 0
    _want(good, "attend_rows", "heads", heads, "a multiple of {} heads of keys", kv_heads)
    for name, t, dim in (("q", q, dims[0]), ("k", k, dims[0]), ("v", v, dims[1])):
        good = t.dtype is q.dtype and t.shape[2] == dim and t.stride(2) == 1
        _want(good, "attend_rows", name, t, "{} heads of {} contiguous columns", q.dtype, dim)
    for name, t, dim in (("k_pool", k_pool, dims[0]), ("v_pool", v_pool, dims[1])):
        good = t.dtype is q.dtype and t.shape[2:] == (kv_heads, dim) and t.stride(3) == 1
        good = good and t.stride(0) == t.shape[1] * t.stride(1)
        wanted = "{} [pages, page_size, {}, {}] with evenly spaced tokens"
        _want(good, "attend_rows", name, t, wanted, q.dtype, kv_heads, dim)
    same = k_pool.shape[:2] == v_pool.shape[:2]
    _want(same, "attend_rows", "v_pool", v_pool, "as many pages and tokens as k_pool")
    requests, rows = page_table.shape[0], k.shape[0]
    _matches("attend_rows", "write_locations", write_locations, torch.int64, rows)
    _matches("attend_rows", "page_table", page_table, torch.int32, requests, page_table.shape[1])
    _matches("attend_rows", "attention_rows", attention_rows, torch.int64, requests, 4)
    _matches("attend_rows", "block_bounds", block_bounds, torch.int64, rows, 2)
    _matches("attend_rows", "out", out, q.dtype, q.shape[0], heads, dims[1])


def check_layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Arguments of ``firstlight::layer_norm``; raises ValueError."""
    _activations("layer_norm", x)
    _matches("layer_norm", "weight", weight, x.dtype, x.shape[-1])
    _matches("layer_norm", "bias", bias, x.dtype, x.shape[-1])


def check_segments(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor | None, sin: Tensor | None,
    bounds: Tensor | None, each: int,
) -> None:  # fmt: skip
    """Arguments of ``firstlight::attend_segments``; raises ValueError."""
    op = "attend_segments"
    good = q.ndim == 3 and q.is_cpu and calls.can_attend_segments(q.dtype, q.shape[2])
    known = "float32 or bfloat16 [rows, heads, an even number of columns up to {}] on the CPU"
    _want(good, op, "q", q, known, calls.LARGEST_SEGMENT_HEAD)
    for name, t in (("k", k), ("v", v)):
        same = t.ndim == 3 and t.shape[:2] == q.shape[:2] and t.dtype is q.dtype
        good = same and (name == "v" or t.shape[2] == q.shape[2])
        _want(good, op, name, t, "{} {}, as q", q.dtype, list(q.shape))
    for name, t in (("q", q), ("k", k), ("v", v)):
        _want(t.shape[2] < 2 or t.stride(2) == 1, op, name, t, "contiguous columns of a head")
    _want((cos is None) == (sin is None), op, "sin", sin, "both of cos and sin, or neither")
    _matches(op, "cos", cos, torch.float32, q.shape[0], q.shape[2])
    _matches(op, "sin", sin, torch.float32, q.shape[0], q.shape[2])
    if bounds is None:
        good = each > 0 and q.shape[0] % each == 0
        _want(good, op, "rows_each", each, "a divisor of the {} rows", q.shape[0])
    else:
        good = bounds.dtype is torch.int32 and bounds.ndim == 1 and bounds.shape[0] > 1
        _want(good and bounds.is_contiguous(), op, "bounds", bounds, "contiguous int32 [2 or more]")


def _activations(op: str, x: Tensor) -> None:
    good = x.dtype in DTYPES and x.ndim > 0 and x.is_cpu
    _want(good, op, "x", x, "float32 or bfloat16 rows on the CPU")


def _matches(op: str, name: str, t: Tensor | None, dtype: torch.dtype, *shape: int) -> None:
    if t is not None:
        good = t.dtype is dtype and t.shape == shape and t.is_contiguous()
        _want(good, op, name, t, "contiguous {} {}", dtype, list(shape))


def _want(good: bool, op: str, name: str, found: object, accepted: str, *of: object) -> None:
    """``accepted`` has places for ``of``: nothing is written where all is well."""
    if good:
        return
    if isinstance(found, Tensor):
        found = (
            f"{found.dtype} {list(found.shape)} with strides {list(found.stride())} "
            f"on {found.device}"
        )
    raise ValueError(f"firstlight::{op}: {name} is {found}; accepted: {accepted.format(*of)}")
