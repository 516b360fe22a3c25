"""Places intermediates in one block of memory so that those alive together do not overlap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firstlight.graphs.arena import aligned
from firstlight.graphs.backends.tape.record import OpCall, Origin, Recording


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Byte offsets of intermediate storages in a block of ``n_bytes``.

    Attributes:
        offsets: by storage index; each a multiple of the cache line.
        unshared: what the intermediates would take if each had memory of its own.
    """

    offsets: dict[int, int]
    n_bytes: int
    unshared: int


def plan_memory(
    recording: Recording, ops: Sequence[OpCall], constants: frozenset[int]
) -> MemoryPlan:
    """Best fit in the order of execution: reuses what was freed last and stays in cache longest."""
    first, last = _lifetimes(recording, ops, constants)
    births: dict[int, list[int]] = {}
    deaths: dict[int, list[int]] = {}
    for index, when in first.items():
        births.setdefault(when, []).append(index)
        deaths.setdefault(last[index], []).append(index)
    free = _FreeList()
    offsets: dict[int, int] = {}
    sizes = {i: aligned(recording.storages[i].n_bytes) for i in first}
    for step in range(len(ops) + 1):
        for index in sorted(births.get(step, ()), key=lambda i: -sizes[i]):
            offsets[index] = free.take(sizes[index])
        for index in deaths.get(step, ()):
            free.give(offsets[index], sizes[index])
    return MemoryPlan(offsets, free.end, sum(sizes.values()))


def _lifetimes(
    recording: Recording, ops: Sequence[OpCall], constants: frozenset[int]
) -> tuple[dict[int, int], dict[int, int]]:
    """First and last step at which each intermediate is touched."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}

    def touch(index: int, step: int) -> None:
        if recording.storages[index].origin is Origin.MADE and index not in constants:
            first.setdefault(index, step)
            last[index] = step

    for step, op in enumerate(ops):
        for index in (*op.reads, *op.writes):
            touch(index, step)
    touch(recording.output.storage, len(ops))
    return first, last


class _FreeList:
    """Free ranges ``[start, start + size)`` below ``end``, ordered and coalesced."""

    def __init__(self) -> None:
        self.end = 0
        self._ranges: list[tuple[int, int]] = []

    def take(self, size: int) -> int:
        """The start of the tightest range that holds ``size``, grown at the end if none does."""
        if size == 0:
            return 0
        fitting = [(n, start) for start, n in self._ranges if n >= size]
        if fitting:
            n, start = min(fitting)
            self._ranges.remove((start, n))
            if n > size:
                self._insert(start + size, n - size)
            return start
        start = self.end
        if self._ranges and sum(self._ranges[-1]) == self.end:
            start = self._ranges.pop()[0]
        self.end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        """Return a range."""
        if size:
            self._insert(start, size)

    def _insert(self, start: int, size: int) -> None:
        merged: list[tuple[int, int]] = []
        for other, n in self._ranges:
            if other + n == start:
                start, size = other, size + n
            elif start + size == other:
                size += n
            else:
                merged.append((other, n))
        merged.append((start, size))
        merged.sort()
        self._ranges = merged
