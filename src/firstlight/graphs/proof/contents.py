"""Seeded random contents for batches and state: every column, plane and position gets its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from firstlight.contract import InputContract
from firstlight.graphs.proof.cases import Case, Media
from firstlight.graphs.proof.memory import Placed
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Extent
from firstlight.graphs.slots import EMBEDS

PLANE_LIMIT = 2
"""Integer planes hold 0 or 1 unless a limit is given: legal for any table of types."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch brings.

    Attributes:
        requests: whose rows lie one after another, n in all.
        rows: ``[n, width]``; positions: int64 ``[R, n]``; planes: ``[n, ...]`` by name, or None
            for a batch without that plane.
    """

    requests: tuple[Placed, ...]
    rows: Tensor
    positions: Tensor
    planes: Mapping[str, Tensor | None]

    @property
    def live(self) -> Extent:
        """Live rows and requests."""
        return Extent(self.rows.shape[0], len(self.requests))

    def alone(self, index: int) -> Batch:
        """The batch of one of its requests."""
        first = sum(len(request) for request in self.requests[:index])
        return self.cut(first, first + len(self.requests[index]), (self.requests[index],))

    def cut(self, first: int, end: int, requests: tuple[Placed, ...]) -> Batch:
        """Rows ``[first, end)``, as a batch of ``requests``."""
        planes = {k: None if v is None else v[first:end] for k, v in self.planes.items()}
        return replace(
            self,
            requests=requests,
            rows=self.rows[first:end],
            positions=self.positions[:, first:end],
            planes=planes,
        )


class Contents:
    """Makes contents that are legal for one model's slots.

    Args:
        max_context: positions stay below it.
        limits: exclusive upper bound of each integer plane, by name.
    """

    def __init__(
        self,
        contract: InputContract,
        registry: SlotRegistry,
        max_context: int,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        self.contract = contract
        self._max_context = max_context
        self._limits = limits or {}
        self._dtype = registry.spec(EMBEDS).dtype
        self._device = registry.buffer(EMBEDS).device
        self._specs = {plane.name: registry.spec(plane.name) for plane in contract.planes}

    def batch(self, case: Case, requests: tuple[Placed, ...], seed: int) -> Batch:
        """A batch of ``case``; equal seeds give equal contents."""
        generator = torch.Generator().manual_seed(seed)
        n = sum(len(request) for request in requests)
        live = _media_rows(case, n)
        rows = self.values((n, self.contract.input_embeds_hidden_size), generator)
        rows[~live, self.contract.segments[0].end :] = 0
        planes: dict[str, Tensor | None] = {}
        for plane in self.contract.planes:
            planes[plane.name] = None
            if case.media is not Media.NONE:
                value = self.plane(plane.name, n, generator)
                value[~live] = plane.neutral
                planes[plane.name] = value
        return Batch(requests, rows, self._positions(case, requests, generator), planes)

    def values(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        """Normal values in the dtype of the rows."""
        return torch.randn(shape, generator=generator).to(self._device, self._dtype)

    def plane(self, name: str, n: int, generator: torch.Generator) -> Tensor:
        """Legal values ``[n, ...]`` of a plane."""
        spec = self._specs[name]
        shape = (n, *(int(size) for size in spec.shape[1:] if isinstance(size, int)))
        if spec.dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(self._device, spec.dtype)
        high = self._limits.get(name, PLANE_LIMIT)
        return torch.randint(0, high, shape, generator=generator).to(self._device, spec.dtype)

    def other_plane(self, name: str, value: Tensor, generator: torch.Generator) -> Tensor:
        """A plane that differs from ``value`` in every entry."""
        if value.dtype.is_floating_point:
            return self.plane(name, value.shape[0], generator)
        high = self._limits.get(name, PLANE_LIMIT)
        return (value + 1) % high

    def position_row(self, n: int, generator: torch.Generator) -> Tensor:
        """Random legal positions int64 ``[n]``."""
        return torch.randint(0, self._max_context, (n,), generator=generator).to(self._device)

    def _positions(
        self, case: Case, requests: tuple[Placed, ...], generator: torch.Generator
    ) -> Tensor:
        natural = torch.cat([torch.arange(r.start, r.end) for r in requests])
        rank = self.contract.position_rank
        rows = natural.repeat(rank, 1)
        if case.unequal and rank > 1:
            n = natural.shape[0]
            shape = (rank, n)
            rows = torch.randint(0, self._max_context, shape, generator=generator)
        return rows.to(self._device)


def _media_rows(case: Case, n: int) -> Tensor:
    """Bool ``[n]``: rows whose later segments and planes are live."""
    live = torch.full((n,), case.media is not Media.NONE)
    if case.media is Media.CUT and n > 2:
        live[n // 3 : n - n // 3] = False
    return live
