"""Measures the forms of an operation against each other and keeps the fastest that is exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch._ops import OpOverload

from firstlight.graphs.backends.tape.forms import Form, fallback, forms_of
from firstlight.graphs.backends.tape.record import OpCall, Place, map_nested
from firstlight.graphs.backends.tape.sample import Contents, Sample, same_bits

_ROUNDS = 7
_LEAST_ROUNDS = 3
_BUDGET_NS = 1_000_000  # measuring time for one signature, beyond the least rounds
_GAIN = 0.95  # a later form is taken only if it takes less than this share of an earlier one
_LARGEST_AXIS = 8  # larger integers are sizes, not axes


class FormChooser:
    """Remembers the choice per signature, across layers and buckets.

    The signature takes element counts by their power of four, so that neighbouring buckets share a
    measurement. Only forms whose results equal the recorded function's bit for bit, on random
    values, are admitted: a choice changes the speed and nothing else.

    Args:
        device: where samples lie; None is the CPU.
        timed: whether forms are timed; else the first exact one is taken, as where the time to
            issue an operation does not matter.
    """

    def __init__(
        self,
        kernels: Mapping[OpOverload, Callable[..., Any]],
        device: torch.device | None = None,
        *,
        timed: bool = True,
    ) -> None:
        self._kernels = kernels
        self._device = device
        self._timed = timed
        self._chosen: dict[Hashable, Form] = {}
        self.n_measured = 0

    def choose(self, op: OpCall, contents: Contents) -> Form:
        """The form for ``op``, measured now if no operation of its signature was seen before."""
        key = signature(op)
        form = self._chosen.get(key)
        if form is None:
            form = self._chosen[key] = self._best(op, contents)
        return form

    def _best(self, op: OpCall, contents: Contents) -> Form:
        kernel = self._kernels.get(op.func)
        n_outputs = len(op.outputs) if any(p is not None for p in op.outputs) else 0
        safe = fallback(op.func, n_outputs, kernel)
        if kernel is not None or op.func.namespace != "aten":
            return safe  # it may have effects that its schema does not tell
        if n_outputs and op.func._schema.is_mutable:
            return safe  # it makes one thing and changes another: rare, and not worth a sample
        sample = Sample(op, contents, self._device)
        if sample.too_big:
            return safe
        self.n_measured += 1
        with torch.inference_mode():
            expected = sample.run(safe)
            forms = forms_of(op.func, n_outputs)
            exact = [form for form in forms if _agree(sample.run(form), expected)]
            if not exact:
                return safe
            return _fastest(exact, sample) if self._timed else exact[0]


def _agree(got: list[torch.Tensor] | None, expected: list[torch.Tensor] | None) -> bool:
    if got is None or expected is None:
        return False
    return all(same_bits(a, b) for a, b in zip(got, expected, strict=True))


def _fastest(forms: Sequence[Form], sample: Sample) -> Form:
    """Interleaved runs; the best time of each counts, which other load disturbs least.

    Forms come in the order of likelihood, so that noise does not decide between equals.
    """
    if len(forms) == 1:
        return forms[0]
    calls = [sample.bind(form) for form in forms]
    best = [float("inf")] * len(forms)
    spent = 0.0
    for done in range(_ROUNDS):
        if done >= _LEAST_ROUNDS and spent > _BUDGET_NS:
            break
        for i, call in enumerate(calls):
            started = time.perf_counter_ns()
            call()
            took = time.perf_counter_ns() - started
            best[i] = min(best[i], took)
            spent += took
    chosen = 0
    for i in range(1, len(forms)):
        if best[i] < _GAIN * best[chosen]:
            chosen = i
    return forms[chosen]


def signature(op: OpCall) -> Hashable:
    """What decides the fastest form: the function, layouts, dtypes, size classes, scalars."""
    return (
        op.func,
        repr(map_nested(_trait, op.args)),
        repr(sorted((k, map_nested(_trait, v)) for k, v in op.kwargs.items())),
        repr(map_nested(_trait, op.outputs)),
    )


def _trait(value: Any) -> Any:
    if isinstance(value, Place):
        order = tuple(sorted(range(len(value.size)), key=lambda d: -value.stride[d]))
        kind = tuple(
            (n == 1, s == 0, s == 1) for n, s in zip(value.size, value.stride, strict=True)
        )
        return (value.dtype, order, kind, prod(value.size).bit_length() // 2)
    if isinstance(value, torch.Tensor):  # opaque: printing it would unpack it
        return ("opaque", value.dtype, tuple(value.shape))
    if isinstance(value, int) and abs(value) > _LARGEST_AXIS:
        return "int"  # it varies with the bucket
    return value
