"""Linear layers in whole numbers: rows are rounded to 8 bits and meet the codes of a weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.native.calls import rows_of
from firstlight.native.checks import check_linear
from firstlight.native.instruction import Instruction, Op, Runner, instruction, result_of
from firstlight.native.weights import BLOCK, WeightFormat

LINEAR_INT8 = (
    "linear_int8(Tensor x, Tensor weight, Tensor? bias, int format, int out_features) -> Tensor"
)
BLOCK_BYTES = BLOCK + 8
"""Of a block of a row: its codes, scale and sum; see ``source/int8_rows.h``."""


def kernels(runner: Runner) -> dict[str, Callable[..., Any]]:
    """Implementations by schema, for torch's registry."""

    def linear_int8(x: Tensor, weight: Tensor, bias: Tensor | None, format: int, n: int) -> Tensor:
        check_linear(x, weight, bias, format, n)
        if not WeightFormat(format).has_codes:
            raise ValueError(
                f"firstlight::linear_int8: format is {WeightFormat(format).name}; accepted: "
                f"{', '.join(f.name for f in WeightFormat if f.has_codes)}"
            )
        even = x if rows_of(x) is not None else x.contiguous()
        out = x.new_empty((*x.shape[:-1], n))
        codes = torch.empty(room(even), dtype=torch.uint8)
        runner.run(*linear_int8_calls(even, weight, bias, format, codes, out))
        return out

    return {LINEAR_INT8: linear_int8}


def stand_ins() -> dict[Any, Callable[..., Any]]:
    """By operation, what gives a result of the same shape, of zeros, and computes nothing."""
    return {
        torch.ops.firstlight.linear_int8.default: lambda x, w, b, format, n: x.new_zeros(
            (*x.shape[:-1], n)
        )
    }


def rules(memory: Callable[[int], Tensor]) -> Mapping[str, Callable[..., Any]]:
    """How recorded operations become instructions, see :mod:`.lowering`.

    Args:
        memory: gives so many bytes for codes of rows, the same to all who ask.
    """

    def linear_int8(
        outs: Sequence[Tensor | None], x: Tensor, weight: Tensor, bias: Tensor | None,
        format: int, n: int,
    ) -> Sequence[Instruction] | None:  # fmt: skip
        out = result_of(outs)
        if rows_of(x) is None or rows_of(out) is None:
            return None
        return linear_int8_calls(x, weight, bias, format, memory(room(x)), out)

    return {"firstlight.linear_int8.default": linear_int8}


def room(x: Tensor) -> int:
    """Bytes of the codes of rows ``[..., K]``."""
    return x.numel() // BLOCK * BLOCK_BYTES


def linear_int8_calls(
    x: Tensor, weight: Tensor, bias: Tensor | None, format: int, codes: Tensor, out: Tensor
) -> tuple[Instruction, Instruction]:
    """Round the rows of x, then ``out[rows, N] = x[rows, K] w^T + bias``.

    Args:
        x, out: rows that lie evenly.
        codes: uint8, at least :func:`room` of it.
    """
    (rows, ldx), (_, ldy) = rows_of(x) or (0, 0), rows_of(out) or (0, 0)
    kind, k = WeightFormat(format), x.shape[-1]
    return (
        instruction(Op.ROUND_ROWS, (x, codes), (rows, k, ldx), dtype=x.dtype, kind=kind),
        instruction(
            Op.LINEAR_INT8,
            (codes, weight, bias, out),
            (rows, k, out.shape[-1], ldx, ldy),
            dtype=x.dtype,
            kind=kind,
        ),
    )
