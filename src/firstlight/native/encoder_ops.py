"""Operations of encoders of pictures: attention within segments, and LayerNorm."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.native.calls import LANES, rows_of
from firstlight.native.checks import check_layer_norm, check_segments
from firstlight.native.instruction import Instruction, Op, Runner, instruction, result_of

LAYER_NORM = "layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> Tensor"
ATTEND_SEGMENTS = (
    "attend_segments(Tensor q, Tensor k, Tensor v, Tensor? cos, Tensor? sin, Tensor? bounds, "
    "int rows_each, float scale) -> Tensor"
)


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
        out = result_of(outs)
        if rows_of(x) is None or rows_of(out) is None:
            return None
        return (layer_norm_call(x, weight, bias, eps, out),)

    def attend_segments(outs: Sequence[Tensor | None], *args: Any) -> Sequence[Instruction]:
        q, _, v = args[:3]
        memory = scratch(segments_room(q, v, args[5], args[6]), q.dtype)
        return segment_calls(args, memory, result_of(outs))

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
