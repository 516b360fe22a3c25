"""``firstlight::linear`` and its like: torch operations whose CPU kernels are compiled ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from firstlight.native import calls, checks, encoder_ops, int8_ops
from firstlight.native.instruction import Runner

LINEAR = "linear(Tensor x, Tensor weight, Tensor? bias, int format, int out_features) -> Tensor"
RMS_NORM = "rms_norm(Tensor x, Tensor weight, float eps, bool offset) -> Tensor"
ROTATE = (
    "rotate(Tensor x, Tensor cos, Tensor sin, Tensor? weight, int head_dim, float eps, "
    "bool offset) -> Tensor"
)
ACTIVATE = "activate(Tensor x, int kind) -> Tensor"
GATE = "gate(Tensor x, int kind) -> Tensor"
ATTEND_ROWS = (
    "attend_rows(Tensor q, Tensor k, Tensor v, Tensor(a!) k_pool, Tensor(b!) v_pool, "
    "Tensor write_locations, Tensor page_table, Tensor attention_rows, Tensor? block_bounds, "
    "Tensor(c!) out, float scale, int window, bool last_only) -> ()"
)


def register(runner: Runner) -> None:
    """Define the operations with torch; once a process, as torch's registry wants it."""
    library: Any = torch.library.Library("firstlight", "FRAGMENT")  # type: ignore[no-untyped-call]
    every = _kernels(runner) | encoder_ops.kernels(runner) | int8_ops.kernels(runner)
    for schema, kernel in every.items():
        library.define(schema)
        library.impl(schema.partition("(")[0], kernel, "CPU")
    # torch drops the definitions with this object, so it lives as long as torch's registry.
    setattr(torch.ops.firstlight, "_native_library", library)  # noqa: B010


def _kernels(runner: Runner) -> dict[str, Callable[..., Any]]:
    def linear(x: Tensor, weight: Tensor, bias: Tensor | None, format: int, n: int) -> Tensor:
        checks.check_linear(x, weight, bias, format, n)
        out = x.new_empty(linear_shape(x, n))
        runner.run(calls.linear_call(_even(x), weight, bias, format, out))
        return out

    def rms_norm(x: Tensor, weight: Tensor, eps: float, offset: bool) -> Tensor:
        checks.check_rms_norm(x, weight, offset)
        out = x.new_empty(x.shape)
        runner.run(calls.rms_norm_call(_even(x), weight, eps, offset, out))
        return out

    def rotate(
        x: Tensor, cos: Tensor, sin: Tensor, weight: Tensor | None, dim: int, eps: float,
        offset: bool,
    ) -> Tensor:  # fmt: skip
        checks.check_rotate(x, cos, sin, weight, dim, offset)
        if not calls.lie_alike(cos, sin):
            cos, sin = cos.contiguous(), sin.contiguous()
        out = x.new_empty(rotate_shape(x, dim))
        runner.run(calls.rotate_call(x, cos, sin, weight, eps, offset, out))
        return out

    def gate(x: Tensor, kind: int) -> Tensor:
        checks.check_gate(x, kind)
        out = x.new_empty(gate_shape(x))
        runner.run(calls.gate_call(_even(x), kind, out))
        return out

    def activate(x: Tensor, kind: int) -> Tensor:
        checks.check_activate(x, kind)
        out = x.new_empty(x.shape)
        runner.run(calls.activate_call(_even(x), kind, out))
        return out

    def attend_rows(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> None:
        checks.check_attend(q, k, v, *rest[:7])
        floats = scratch_of(q, v, rest[0], rest[3])
        scratch = torch.empty(floats, dtype=torch.float32)
        runner.run(*calls.attention_calls((q, k, v, *rest), scratch))

    return {
        LINEAR: linear,
        RMS_NORM: rms_norm,
        ROTATE: rotate,
        ACTIVATE: activate,
        GATE: gate,
        ATTEND_ROWS: attend_rows,
    }


def scratch_of(q: Tensor, v: Tensor, k_pool: Tensor, page_table: Tensor) -> int:
    """Float32 values of the partial results of one attention."""
    most = page_table.shape[1] * k_pool.shape[1]
    return calls.scratch_floats(q.shape[0], q.shape[1], v.shape[2], most)


def linear_shape(x: Tensor, out_features: int) -> tuple[int, ...]:
    """The shape of a linear layer's result."""
    return (*x.shape[:-1], out_features)


def rotate_shape(x: Tensor, head_dim: int) -> tuple[int, int, int]:
    """``[rows, heads, head_dim]`` of ``[rows, heads * head_dim]``."""
    return (x.shape[0], x.shape[1] // head_dim, head_dim)


def gate_shape(x: Tensor) -> tuple[int, ...]:
    """Half as many columns."""
    return (*x.shape[:-1], x.shape[-1] // 2)


def _even(x: Tensor) -> Tensor:
    return x if calls.rows_of(x) is not None else x.contiguous()


def stand_ins() -> dict[Any, Callable[..., Any]]:
    """By operation, what gives a result of the same shape, of zeros, and computes nothing."""
    ops = torch.ops.firstlight
    return {
        ops.linear.default: lambda x, w, b, format, n: x.new_zeros(linear_shape(x, n)),
        ops.rms_norm.default: lambda x, *_: x.new_zeros(x.shape),
        ops.rotate.default: lambda x, c, s, w, dim, *_: x.new_zeros(rotate_shape(x, dim)),
        ops.activate.default: lambda x, kind: x.new_zeros(x.shape),
        ops.gate.default: lambda x, kind: x.new_zeros(gate_shape(x)),
        ops.attend_rows.default: lambda *_: None,
        **encoder_ops.stand_ins(),
        **int8_ops.stand_ins(),
    }
