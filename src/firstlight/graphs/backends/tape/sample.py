"""Arguments like the recorded ones, on which the forms of an operation are compared."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch

from firstlight.graphs.backends.tape.forms import Call, Form
from firstlight.graphs.backends.tape.record import OpCall, Place, map_nested

# The tensor at a place if its contents can be used as they are: weights, constants, index slots.
Contents = Callable[[Place], torch.Tensor | None]

_LARGEST = 64 << 20  # bytes; operations on larger arguments are not measured
_PATTERN = 65_537  # random values repeat after this many: a prime, so that no two rows are equal


class Sample:
    """One operation's arguments: weights as they are, random floats for what varies.

    Attributes:
        too_big: an argument is too large to be made up.
    """

    def __init__(self, op: OpCall, contents: Contents, device: torch.device | None = None) -> None:
        self._op = op
        self._contents = contents
        self._device = torch.device("cpu") if device is None else device
        self._generator = torch.Generator().manual_seed(0)
        self.too_big = False
        self.makes = any(place is not None for place in op.outputs)
        self._args = map_nested(self._like, op.args)
        self._kwargs = {k: map_nested(self._like, v) for k, v in op.kwargs.items()}

    def bind(self, form: Form) -> Call:
        """``form`` on the sample, results in memory that nobody looks at."""
        return form.bind(self._args, self._kwargs, self._outs())

    def run(self, form: Form) -> list[torch.Tensor] | None:
        """What ``form`` leaves in its results and written arguments; None if it cannot be called.

        Every run starts from equal arguments.
        """
        copies: dict[int, torch.Tensor] = {}

        def fresh(value: Any) -> Any:
            if self.makes or not isinstance(value, torch.Tensor):
                return value
            return copies.setdefault(id(value), _copy(value))

        args = map_nested(fresh, self._args)
        kwargs = {k: map_nested(fresh, v) for k, v in self._kwargs.items()}
        outs = self._outs()
        try:
            form.bind(args, kwargs, outs)()
        except (TypeError, ValueError, RuntimeError, AttributeError):
            return None
        return [t for t in outs if t is not None] + list(copies.values())

    def _outs(self) -> list[torch.Tensor | None]:
        if not self.makes:
            return []
        return [
            None
            if p is None
            else torch.empty_strided(p.size, p.stride, dtype=p.dtype, device=self._device)
            for p in self._op.outputs
        ]

    def _like(self, place: Any) -> Any:
        if not isinstance(place, Place) or self.too_big:
            return place
        known = self._contents(place)
        if known is not None and place.storage not in self._op.writes:
            return known
        extent = _extent(place)
        if extent * place.dtype.itemsize > _LARGEST:
            self.too_big = True
            return place
        if known is not None:
            base = known.as_strided((extent,), (1,)).clone()
        else:
            base = self._random(extent, place.dtype).to(self._device)
        return base.as_strided(place.size, place.stride)

    def _random(self, n: int, dtype: torch.dtype) -> torch.Tensor:
        """Normal floats; integers are zero, because they may be indices and 0 is always legal."""
        if dtype.is_floating_point or dtype.is_complex:
            values = torch.randn(min(n, _PATTERN), generator=self._generator).to(dtype)
        elif dtype is torch.bool:
            values = torch.randint(0, 2, (min(n, _PATTERN),), generator=self._generator).to(dtype)
        else:
            return torch.zeros(n, dtype=dtype)
        return values if n <= _PATTERN else values.repeat(-(-n // _PATTERN))[:n]


def _extent(place: Place) -> int:
    """Elements from the first to the last that the place covers."""
    if prod(place.size) == 0:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(place.size, place.stride, strict=True))


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        return tensor
    return torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal shape, dtype and bytes; NaN equals NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    bits = (t.reshape(-1).contiguous().view(torch.uint8) for t in (a, b))
    return torch.equal(*bits)
