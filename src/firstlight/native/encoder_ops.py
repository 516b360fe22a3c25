"""Operations of encoders of pictures: attention within segments, and LayerNorm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from firstlight.native.calls import LANES, rows_of
from firstlight.native.checks import DTYPES
from firstlight.native.instruction import Instruction, Op, instruction

LAYER_NORM = "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor"
ATTEND_SEGMENTS = (
    "attend_segments(Tensor q, Tensor k, Tensor v, Tensor? cos, Tensor? sin, Tensor? bounds, "
    "int rows_each, float scale) -> Tensor"
)
LARGEST_HEAD = 512
"""Columns of a head that ``source/segments.h`` has room for."""


class Runner(Protocol):
    """What runs instructions."""

    def run(self, *instructions: Instruction) -> None:
        """Run them once, in order."""
        ...


def can_attend_segments(dtype: torch.dtype, key_dim: int) -> bool:
    """Whether the kernel takes heads of ``key_dim`` columns: an even number, as pairs are met."""
    return dtype in DTYPES and key_dim % 2 == 0 and 0 < key_dim <= LARGEST_HEAD


def kernels(runner: Runner) -> dict[str, Callable[..., Any]]:
    """Implementations by schema, for torch's registry."""

    def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        check_layer_norm(x, weight, bias)
        out = x.new_empty(x.shape)
        even = x if rows_of(x) is not None else x.contiguous()
        runner.run(layer_norm_call(even, weight, bias, eps, out))
        return out

    def attend_segments(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Tensor:
        check_segments(q, k, v, *rest[:4])
        out = q.new_empty(segments_shape(q, v))
        scratch = q.new_empty(segments_room(q, v, rest[2], rest[3]))
        runner.run(*segment_calls((q, k, v, *rest), scratch, out))
        return out

    return {LAYER_NORM: layer_norm, ATTEND_SEGMENTS: attend_segments}


def stand_ins() -> dict[Any, Callable[..., Any]]:
    """By operation, what gives a result of the same shape, of zeros, and computes nothing."""
    ops = torch.ops.firstlight
    return {
        ops.layer_norm.default: lambda x, *_: x.new_zeros(x.shape),
        ops.attend_segments.default: lambda q, k, v, *_: q.new_zeros(segments_shape(q, v)),
    }


def rules(scratch: Callable[[int, torch.dtype], Tensor]) -> Mapping[str, Callable[..., Any]]:
    """How recorded operations become instructions, see :mod:`.lowering`.

    Args:
        scratch: gives memory for so many values of a type, the same for all who ask.
    """

    def layer_norm(
        outs: Sequence[Tensor | None], x: Tensor, weight: Tensor | None, bias: Tensor | None,
        eps: float,
    ) -> Sequence[Instruction] | None:  # fmt: skip
        out = _result(outs)
        if rows_of(x) is None or rows_of(out) is None:
            return None
        return (layer_norm_call(x, weight, bias, eps, out),)

    def attend_segments(outs: Sequence[Tensor | None], *args: Any) -> Sequence[Instruction]:
        q, _, v = args[:3]
        memory = scratch(segments_room(q, v, args[5], args[6]), q.dtype)
        return segment_calls(args, memory, _result(outs))

    return {
        "firstlight.layer_norm.default": layer_norm,
        "firstlight.attend_segments.default": attend_segments,
    }


def layer_norm_call(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, out: Tensor
) -> Instruction:
    """LayerNorm of rows that lie evenly."""
    (rows, ldx), (_, ldy) = rows_of(x) or (0, 0), rows_of(out) or (0, 0)
    numbers = (rows, x.shape[-1], ldx, ldy)
    return instruction(Op.LAYER_NORM, (x, weight, bias, out), numbers, (eps,), dtype=x.dtype)


def segment_calls(
    arguments: Sequence[Any], scratch: Tensor, out: Tensor
) -> tuple[Instruction, Instruction]:
    """Lay out keys and values, then attend.

    Args:
        arguments: those of ``firstlight::attend_segments``.
        scratch: of q's type, :func:`segments_room` values.
    """
    q, k, v, cos, sin, bounds, each, scale = arguments
    rows, heads, key_dim = q.shape
    strides = [stride for t in (q, k, v) for stride in t.stride()[:2]]
    numbers = (
        rows, heads, key_dim, v.shape[2], *strides, _segments(rows, bounds, each), each,
        0 if cos is None else cos.stride(0),
    )  # fmt: skip
    tensors = (q, k, v, cos, sin, bounds, scratch, out)
    first, second = (
        instruction(op, tensors, numbers, (scale,), dtype=q.dtype)
        for op in (Op.LAY_OUT_SEGMENTS, Op.ATTEND_SEGMENTS)
    )
    return first, second


def segments_shape(q: Tensor, v: Tensor) -> tuple[int, int, int]:
    """Of the result: ``[rows, heads, value dim]``."""
    return q.shape[0], q.shape[1], v.shape[2]


def segments_room(q: Tensor, v: Tensor, bounds: Tensor | None, each: int) -> int:
    """Values that keys and values take once they are laid out; see ``Segments::room``."""
    rows, heads, key_dim = q.shape
    panels = -(-rows // LANES) + _segments(rows, bounds, each) + 1
    return heads * panels * LANES * (key_dim + -(-v.shape[2] // LANES) * LANES)


def _segments(rows: int, bounds: Tensor | None, each: int) -> int:
    return rows // each if bounds is None else bounds.shape[0] - 1


def check_layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> None:
    """Arguments of ``firstlight::layer_norm``; raises ValueError."""
    _want(x.dtype in DTYPES and x.ndim > 0 and x.is_cpu, "layer_norm", "x", x,
          "float32 or bfloat16 rows on the CPU")  # fmt: skip
    for name, t in (("weight", weight), ("bias", bias)):
        if t is not None:
            good = t.dtype is x.dtype and t.shape == x.shape[-1:] and t.is_contiguous()
            _want(good, "layer_norm", name, t, f"contiguous {x.dtype} [{x.shape[-1]}]")


def check_segments(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor | None, sin: Tensor | None,
    bounds: Tensor | None, each: int,
) -> None:  # fmt: skip
    """Arguments of ``firstlight::attend_segments``; raises ValueError."""
    op = "attend_segments"
    good = q.ndim == 3 and q.is_cpu and can_attend_segments(q.dtype, q.shape[2])
    known = f"float32 or bfloat16 [rows, heads, an even number of columns up to {LARGEST_HEAD}]"
    _want(good, op, "q", q, f"{known} on the CPU")
    for name, t in (("k", k), ("v", v)):
        same = t.ndim == 3 and t.shape[:2] == q.shape[:2] and t.dtype is q.dtype
        good = same and (name == "v" or t.shape[2] == q.shape[2])
        _want(good, op, name, t, f"{q.dtype} {list(q.shape)}, as q")
    for name, t in (("q", q), ("k", k), ("v", v)):
        _want(t.shape[2] < 2 or t.stride(2) == 1, op, name, t, "contiguous columns of a head")
    _want((cos is None) == (sin is None), op, "sin", sin, "both of cos and sin, or neither")
    for name, table in (("cos", cos), ("sin", sin)):
        if table is not None:
            good = table.dtype is torch.float32 and table.shape == (q.shape[0], q.shape[2])
            good = good and table.is_contiguous()
            _want(good, op, name, table, f"contiguous float32 [{q.shape[0]}, {q.shape[2]}]")
    if bounds is None:
        good = each > 0 and q.shape[0] % each == 0
        _want(good, op, "rows_each", each, f"a divisor of the {q.shape[0]} rows")
    else:
        good = bounds.dtype is torch.int32 and bounds.ndim == 1 and bounds.shape[0] > 1
        _want(good and bounds.is_contiguous(), op, "bounds", bounds, "contiguous int32 [2 or more]")


def _want(good: bool, op: str, name: str, found: object, accepted: str) -> None:
    if good:
        return
    if isinstance(found, Tensor):
        found = f"{found.dtype} {list(found.shape)} with strides {list(found.stride())}"
    raise ValueError(f"firstlight::{op}: {name} is {found}; accepted: {accepted}")


def _result(outs: Sequence[Tensor | None]) -> Tensor:
    assert outs[0] is not None, "the result of an operation that is read has a place"
    return outs[0]
