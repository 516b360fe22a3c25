"""Measures the forms of an operation against each other and keeps the fastest that is exact."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from firstlight.graphs.backends.tape.forms import Form, Outs, fallback, forms_of
from firstlight.graphs.backends.tape.record import OpCall, Place, map_nested

_BUDGET_NS = 2_000_000  # measuring time for one form of one signature
_ROUNDS = 9
_LARGEST_AXIS = 8
_LARGEST_SAMPLE = 64 << 20  # bytes; operations on larger ones are not measured

# The tensor at a place if its contents can be used as they are: weights, constants, index slots.
Contents = Callable[[Place], torch.Tensor | None]


class FormChooser:
    """Remembers the choice per signature, across layers and buckets.

    The signature takes element counts by their power of two, so that neighbouring buckets share a
    measurement. Only forms whose results equal the recorded function's bit for bit, on random
    values, are admitted: a choice changes the speed and nothing else.
    """

    def __init__(self, kernels: Mapping[OpOverload, Callable[..., Any]]) -> None:
        self._kernels = kernels
        self._chosen: dict[Hashable, Form] = {}
        self.n_measured = 0

    def choose(self, op: OpCall, contents: Contents) -> Form:
        """The form for ``op``, measured now if no operation of its signature was seen before."""
        kernel = self._kernels.get(op.func)
        key = signature(op)
        form = self._chosen.get(key)
        if form is None:
            forms = forms_of(op.func, len(op.outputs) if _makes(op) else 0, kernel)
            form = forms[0] if kernel is not None else self._measure(op, forms, contents)
            self._chosen[key] = form
        return form

    def _measure(self, op: OpCall, forms: list[Form], contents: Contents) -> Form:
        self.n_measured += 1
        safe = fallback(op.func, len(op.outputs) if _makes(op) else 0, None)
        if op.func.namespace != "aten":
            return safe  # it may have effects that its schema does not tell
        sample = _Sample(op, contents)
        if sample.too_big:
            return safe
        with torch.inference_mode():
            exact = [form for form in forms if sample.agrees(form, safe)]
            return sample.fastest(exact) if exact else safe


def _makes(op: OpCall) -> bool:
    return any(place is not None for place in op.outputs)


def signature(op: OpCall) -> Hashable:
    """What decides the fastest form: the function, layouts, dtypes, size classes, scalars."""

    def leaf(value: Any) -> Any:
        if isinstance(value, Place):
            order = tuple(sorted(range(len(value.size)), key=lambda d: -value.stride[d]))
            kind = tuple(
                (n == 1, s == 0, s == 1) for n, s in zip(value.size, value.stride, strict=True)
            )
            return (value.dtype, order, kind, _numel(value).bit_length())
        if isinstance(value, int) and abs(value) > _LARGEST_AXIS:
            return "int"  # a size: it varies with the bucket
        return value

    return (
        op.func,
        repr(map_nested(leaf, op.args)),
        repr(sorted((k, map_nested(leaf, v)) for k, v in op.kwargs.items())),
        repr(map_nested(leaf, op.outputs)),
    )


def _numel(place: Place) -> int:
    n = 1
    for size in place.size:
        n *= size
    return n


class _Sample:
    """Arguments like the recorded ones, with random floats, that measuring may overwrite."""

    def __init__(self, op: OpCall, contents: Contents) -> None:
        self._op = op
        self._contents = contents
        self._generator = torch.Generator().manual_seed(0)
        self.too_big = False
        self._args = map_nested(self._like, op.args)
        self._kwargs = {k: map_nested(self._like, v) for k, v in op.kwargs.items()}

    def _like(self, place: Any) -> Any:
        if not isinstance(place, Place) or self.too_big:
            return place
        known = self._contents(place)
        written = place.storage in self._op.writes
        if known is not None and not written:
            return known
        extent = _extent(place)
        if extent * place.dtype.itemsize > _LARGEST_SAMPLE:
            self.too_big = True
            return place
        if known is not None:
            base = known.as_strided((extent,), (1,)).clone()
        else:
            base = self._random(extent, place.dtype)
        return base.as_strided(place.size, place.stride)

    def _random(self, n: int, dtype: torch.dtype) -> torch.Tensor:
        """Normal floats; integers are zero, because they may be indices and 0 is always legal."""
        if dtype.is_floating_point or dtype.is_complex:
            values = torch.empty(n, dtype=torch.float64).normal_(generator=self._generator)
            return values.to(dtype)
        if dtype is torch.bool:
            return torch.randint(0, 2, (n,), generator=self._generator).to(dtype)
        return torch.zeros(n, dtype=dtype)

    def _outs(self) -> list[torch.Tensor | None]:
        return (
            [
                None if p is None else torch.empty_strided(p.size, p.stride, dtype=p.dtype)
                for p in self._op.outputs
            ]
            if _makes(self._op)
            else []
        )

    def _run(self, form: Form) -> list[torch.Tensor]:
        """What ``form`` leaves in the outputs and the written arguments, from equal inputs."""
        copies: dict[int, torch.Tensor] = {}

        def fresh(value: Any) -> Any:
            if not isinstance(value, torch.Tensor) or not self._written_by(value):
                return value
            return copies.setdefault(id(value), _copy(value))

        args = map_nested(fresh, self._args)
        kwargs = {k: map_nested(fresh, v) for k, v in self._kwargs.items()}
        outs = self._outs()
        form.bind(args, kwargs, outs)()
        return [t for t in outs if t is not None] + list(copies.values())

    def _written_by(self, value: torch.Tensor) -> bool:
        return not _makes(self._op) and value.layout is torch.strided

    def agrees(self, form: Form, reference: Form) -> bool:
        """Whether ``form`` gives the bits of ``reference`` (and can be called at all)."""
        try:
            got = self._run(form)
        except (TypeError, RuntimeError, NotImplementedError, AttributeError):
            return False
        return all(_same_bits(a, b) for a, b in zip(got, self._run(reference), strict=True))

    def fastest(self, forms: Sequence[Form]) -> Form:
        """Interleaved runs; the best time of each counts, which other load disturbs least."""
        if len(forms) == 1:
            return forms[0]
        outs: Outs = self._outs()
        calls = [form.bind(self._args, self._kwargs, outs) for form in forms]
        best = [float("inf")] * len(forms)
        spent = 0
        for _ in range(_ROUNDS):
            for i, call in enumerate(calls):
                started = time.perf_counter_ns()
                call()
                took = time.perf_counter_ns() - started
                best[i] = min(best[i], took)
                spent += took
            if spent > _BUDGET_NS * len(forms):
                break
        return forms[min(range(len(forms)), key=best.__getitem__)]


def _extent(place: Place) -> int:
    """Elements from the first to the last that the place covers."""
    if _numel(place) == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(place.size, place.stride, strict=True))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype).copy_(tensor)


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = (t.reshape(-1).contiguous().view(torch.uint8) for t in (a, b))
    return torch.equal(*bits)
