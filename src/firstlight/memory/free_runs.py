"""Runs of consecutive free pages, found by either end and by length.

Runs of ``n`` pages in all have at most ``sqrt(2 n)`` different lengths, so the sorted list of
lengths stays short however large the pool is, and each operation is a few dictionary accesses and
one bisection.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class FreeRuns:
    """A set of runs ``(start, length)`` that do not overlap."""

    def __init__(self) -> None:
        self._length: dict[int, int] = {}
        self._start: dict[int, int] = {}
        self._with_length: dict[int, dict[int, None]] = {}
        self._lengths: list[int] = []

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """All runs, as (start, length)."""
        return iter(self._length.items())

    def add(self, start: int, length: int) -> None:
        """Enter the run ``[start, start + length)``; nothing if it is empty."""
        if length < 1:
            return
        self._length[start] = length
        self._start[start + length] = start
        starts = self._with_length.get(length)
        if starts is None:
            self._with_length[length] = {start: None}
            insort(self._lengths, length)
        else:
            starts[start] = None

    def remove(self, start: int) -> int:
        """Take out the run that begins at ``start`` and return its length, 0 if there is none."""
        length = self._length.pop(start, 0)
        if length:
            del self._start[start + length]
            starts = self._with_length[length]
            del starts[start]
            if not starts:
                del self._with_length[length]
                del self._lengths[bisect_left(self._lengths, length)]
        return length

    def length_at(self, start: int) -> int:
        """Length of the run that begins at ``start``, 0 if there is none."""
        return self._length.get(start, 0)

    def start_of_end(self, end: int) -> int | None:
        """Where the run begins whose last page is ``end - 1``, if there is one."""
        return self._start.get(end)

    def smallest(self, at_least: int) -> int | None:
        """The start of the shortest run of at least that many pages, if there is one."""
        at = bisect_left(self._lengths, at_least)
        return self._first(self._lengths[at]) if at < len(self._lengths) else None

    def longest(self) -> tuple[int, int]:
        """The longest run as (start, length); length 0 if there is none."""
        if not self._lengths:
            return 0, 0
        return self._first(self._lengths[-1]), self._lengths[-1]

    def _first(self, length: int) -> int:
        return next(iter(self._with_length[length]))
