"""What a proof must know of the memory that a body reads and writes beside its slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

Blocks = tuple[tuple[int, int], ...]
"""Half-open ranges of positions, ascending and apart, whose rows see each other."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Positions ``[start, end)`` of one request, which a batch computes, and where it lives.

    ``[0, start)`` is in memory already. ``units`` are the request's units of memory in order:
    position p lies in ``units[p // unit_tokens]``. ``blocks`` are the request's media blocks, where
    the input contract asks for a prefix-LM mask; a batch computes a block whole or not at all.
    """

    units: tuple[int, ...]
    start: int
    end: int
    blocks: Blocks = ()

    def __len__(self) -> int:
        return self.end - self.start

    def first_seen(self, window: int | None) -> int:
        """The earliest position that a row sees: the row at p sees ``(p - window, p]``."""
        return 0 if window is None else max(self.start - window + 1, 0)

    def units_seen(self, window: int | None, unit_tokens: int) -> tuple[int, ...]:
        """The units that hold a position which the rows see or write."""
        first = self.first_seen(window) // unit_tokens
        return self.units[first : -(-self.end // unit_tokens)]

    def align(self, position: int, *, up: bool = False) -> int:
        """The nearest position below ``position``, or above, that cuts no block."""
        for low, high in self.blocks:
            if low < position < high:
                return high if up else low
        return position


class ProofMemory(Protocol):
    """The owner of the state that a body keeps between batches, e.g. a paged KV pool.

    Implemented by whoever brings a body; :class:`NoMemory` serves bodies without state. A unit is a
    page, or a single token slot: one index of the first dimension of every state tensor. Where
    state tensors have pages of their own, see :class:`SidedMemory`.

    A state tensor ``[units, unit_tokens, ...]`` of three dimensions or more holds a position at
    each index of the second; so does a unit itself where ``unit_tokens`` is 1. Of any other tensor
    nothing is taken to be known but whose a unit is.
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
        """Take ``n`` units that belong to nobody, ascending; they come back by `give_back`.

        Best from both ends of the numbering, so that tables which are too short for it show.
        """
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


@runtime_checkable
class SidedMemory(ProofMemory, Protocol):
    """A memory of several sides: tensors whose units lie in rows of their own, bound on demand.

    A unit is a *virtual* page. Each state tensor belongs to a side, which maps virtual pages to
    rows of its tensors; a side whose layers have a sliding window holds only the units that some
    row can still see. :meth:`ProofMemory.lend` mints units and need not bind any;
    :meth:`ProofMemory.give_back` unbinds them on every side; ``sink`` is the virtual sink.
    """

    def fits(self, requests: Sequence[tuple[int, int]]) -> bool:
        """Whether every side has room for requests ``(start, end)`` with no unit in common."""
        ...

    def bind(self, requests: Sequence[Placed]) -> None:
        """Make every side hold, of all units that are lent, exactly what ``requests`` need.

        A side with a window holds :meth:`Placed.units_seen` of each request, as when a step is
        about to compute it; what else of the loan was bound there becomes unbound, as when pages
        left the window. Units are bound in ascending order of their numbers, so that a request
        whose units are scattered lies scattered on every side. Binding the same requests again
        moves nothing. Contents of rows need not be kept; the proof writes them.
        """
        ...

    def rows(self, name: str, units: Sequence[int]) -> Sequence[int]:
        """The row of the state tensor ``name`` that holds each unit now.

        The row of the sink where its side does not hold the unit, and for the sink itself.
        """
        ...

    def window(self, name: str) -> int | None:
        """How many positions a row sees at most of the tensor ``name``, itself included.

        None if it sees its whole context.
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


def windows_of(memory: ProofMemory) -> tuple[int, ...]:
    """The windows of a memory's sides that hide anything, ascending."""
    if not isinstance(memory, SidedMemory):
        return ()
    found = {memory.window(name) for name in memory.state()}
    return tuple(sorted(w for w in found if w is not None and w < memory.max_context))
