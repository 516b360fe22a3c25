"""What a proof must know of the memory that a body reads and writes beside its slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class Placed:
    """Positions ``[start, end)`` of one request, which a batch computes, and where it lives.

    ``[0, start)`` is in memory already. ``units`` are the request's units of memory in order:
    position p lies in ``units[p // unit_tokens]``.
    """

    units: tuple[int, ...]
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


class ProofMemory(Protocol):
    """The owner of the state that a body keeps between batches, e.g. a paged KV pool.

    Implemented by whoever brings a body; :class:`NoMemory` serves bodies without state. A unit is a
    page, or a single token slot: one index of the first dimension of every state tensor.
    """

    @property
    def unit_tokens(self) -> int:
        """Positions that one unit holds."""
        ...

    @property
    def sink(self) -> int | None:
        """The unit that padding rows write to and nobody reads; None if there is none."""
        ...

    @property
    def max_context(self) -> int:
        """Positions that one request may reach."""
        ...

    @property
    def free_units(self) -> int:
        """Units that :meth:`lend` can give now."""
        ...

    def state(self) -> Mapping[str, torch.Tensor]:
        """Every tensor that the body writes and later batches read, ``[units, ...]``, by name."""
        ...

    def lend(self, n: int) -> Sequence[int]:
        """Take ``n`` units that belong to nobody, ascending; they come back by `give_back`."""
        ...

    def give_back(self, units: Sequence[int]) -> None:
        """Return units that were lent."""
        ...

    def values(self, requests: Sequence[Placed]) -> Mapping[str, torch.Tensor]:
        """The live part of every copied slot that is neither rows, positions nor a plane.

        The requests' rows lie one after another in the batch. This is the very function that
        serves batches, so that its faults show.
        """
        ...


class NoMemory:
    """For bodies that keep nothing between batches: every row stands for itself.

    Args:
        max_context: positions that a row may be given.
    """

    unit_tokens = 1
    sink: int | None = None
    free_units = 1 << 30

    def __init__(self, max_context: int) -> None:
        self.max_context = max_context

    def state(self) -> Mapping[str, torch.Tensor]:
        """Nothing."""
        return {}

    def lend(self, n: int) -> Sequence[int]:
        """Numbers that mean nothing."""
        return range(n)

    def give_back(self, units: Sequence[int]) -> None:
        """Nothing to do."""

    def values(self, requests: Sequence[Placed]) -> Mapping[str, torch.Tensor]:
        """Nothing."""
        return {}
