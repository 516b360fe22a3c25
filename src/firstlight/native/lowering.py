"""Operations of a recording as instructions: neighbours of a graph run as one program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.native import calls, encoder_ops, int8_ops
from firstlight.native.instruction import Instruction, result_of
from firstlight.native.kernels import Kernels
from firstlight.native.ops import scratch_of, stand_ins

Lowered = Sequence[Instruction] | None


class NativeLowering:
    """Says which operations the kernels compute, and makes programs of them.

    Partial results of attention, and rows that were rounded for a linear layer, lie in one block of
    memory each for all graphs of this lowering, which must therefore not run at the same time.
    """

    form = "native"

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._scratch = torch.empty(0)
        self._keys = torch.empty(0)
        self._codes = torch.empty(0, dtype=torch.uint8)
        self.stand_ins: Mapping[Any, Callable[..., Any]] = stand_ins()
        self._rules: dict[str, Callable[..., Lowered]] = {
            "firstlight.linear.default": _linear,
            "firstlight.rms_norm.default": _rms_norm,
            "firstlight.rotate.default": _rotate,
            "firstlight.gate.default": _gate,
            "firstlight.activate.default": _activate,
            "firstlight.attend_rows.default": self._attend_rows,
            "aten.add.Tensor": _add,
            **encoder_ops.rules(self._key_memory),
            **int8_ops.rules(self._code_memory),
        }

    def lower(self, name: str, args: Sequence[Any], outs: Sequence[Tensor | None]) -> Lowered:
        """The instructions of one operation; None if the kernels do not compute it.

        Args:
            name: e.g. ``aten.add.Tensor``.
            args: positional arguments, tensors at their fixed memory.
            outs: where results go.
        """
        rule = self._rules.get(name)
        return None if rule is None else rule(outs, *args)

    def program(self, instructions: Sequence[Instruction]) -> Callable[[], None]:
        """One call for all of them, in order."""
        return self._kernels.program(instructions)

    def _attend_rows(self, outs: Sequence[Tensor | None], *args: Any) -> Lowered:
        q, _, v, k_pool = args[:4]
        floats = scratch_of(q, v, k_pool, args[6])
        if self._scratch.numel() < floats:
            # Graphs made before keep the smaller block that they were made with.
            self._scratch = torch.empty(floats, dtype=torch.float32)
        return calls.attention_calls(args, self._scratch)

    def _key_memory(self, n: int, dtype: torch.dtype) -> Tensor:
        if self._keys.numel() < n or self._keys.dtype is not dtype:
            self._keys = torch.empty(n, dtype=dtype)  # as above
        return self._keys

    def _code_memory(self, n: int) -> Tensor:
        if self._codes.numel() < n:
            self._codes = torch.empty(n, dtype=torch.uint8)  # as above
        return self._codes


def _linear(
    outs: Sequence[Tensor | None],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    format: int,
    n: int,
) -> Lowered:
    out = result_of(outs)
    return (calls.linear_call(x, weight, bias, format, out),) if _even(x, out) else None


def _rms_norm(
    outs: Sequence[Tensor | None], x: Tensor, weight: Tensor, eps: float, offset: bool
) -> Lowered:
    out = result_of(outs)
    return (calls.rms_norm_call(x, weight, eps, offset, out),) if _even(x, out) else None


def _rotate(
    outs: Sequence[Tensor | None], x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None,
    dim: int, eps: float, offset: bool,
) -> Lowered:  # fmt: skip
    if not calls.lie_alike(cos, sin):
        return None
    return (calls.rotate_call(x, cos, sin, weight, eps, offset, result_of(outs)),)


def _gate(outs: Sequence[Tensor | None], x: Tensor, kind: int) -> Lowered:
    out = result_of(outs)
    return (calls.gate_call(x, kind, out),) if _even(x, out) else None


def _activate(outs: Sequence[Tensor | None], x: Tensor, kind: int) -> Lowered:
    out = result_of(outs)
    return (calls.activate_call(x, kind, out),) if _even(x, out) else None


def _add(outs: Sequence[Tensor | None], a: Tensor, b: Any) -> Lowered:
    out = result_of(outs)
    if not isinstance(b, Tensor) or {a.dtype, b.dtype, out.dtype} not in _DTYPES:
        return None
    found = calls.add_call(a, b, out)
    return None if found is None else (found,)


_DTYPES = ({torch.float32}, {torch.bfloat16})


def _even(*tensors: Tensor) -> bool:
    """Whether the rows of all lie evenly."""
    return all(calls.rows_of(tensor) is not None for tensor in tensors)
