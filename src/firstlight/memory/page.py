"""Who owns which page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar, cast

from firstlight.errors import CapacityError, ConfigError
from firstlight.memory.free_runs import FreeRuns

P = TypeVar("P", bound=int)


class PageAllocator(Generic[P]):
    """Hands out pages ``1 .. n_pages - 1`` of one space; page 0 is the sink and never leaves.

    Runs of consecutive pages are preferred: attention reads a run as one view and has to gather
    scattered pages. The free pages behind a request that is expected to grow are *hoped for*: they
    are free, but others are placed elsewhere while there is room. No operation looks at more pages
    than it takes or gives.

    Args:
        n_pages: pages of the space, the sink included.
        name: the configuration's field that sets their number, for messages.

    Raises:
        ConfigError: there is no page beside the sink.
    """

    def __init__(self, n_pages: int, *, name: str = "kv_pages") -> None:
        if n_pages < 2:
            raise ConfigError(f"{name} = {n_pages}; accepted: at least 2 (page 0 is the sink)")
        self.n_pages = n_pages
        self._free = bytearray([0] + [1] * (n_pages - 1))
        self._n_free = n_pages - 1
        self._plain = FreeRuns()
        self._hoped = FreeRuns()
        self._plain.add(1, n_pages - 1)

    @property
    def n_free(self) -> int:
        """Pages that can be allocated now."""
        return self._n_free

    def is_free(self, page: P) -> bool:
        """Whether nobody owns ``page``; never true of the sink.

        Raises:
            IndexError: the page is outside the space.
        """
        return bool(self._free[page])

    def allocate(self, n: int, *, after: P | None = None, expected: int = 0) -> list[P]:
        """Take ``n`` pages.

        The run directly behind ``after`` comes first, then the start of the shortest free run of
        ``expected`` pages (``n`` of them now, the rest hoped for), then the longest run that holds
        ``n``, at last scattered pages.

        Raises:
            CapacityError: fewer than ``n`` pages are free; nothing is taken.
        """
        if n > self._n_free:
            raise CapacityError(
                f"{n} KV pages are needed and {self._n_free} of {self.n_pages - 1} are free"
            )
        if n < 1:
            return []
        wanted = max(n, expected)
        if after is not None and self._length_at(after + 1) >= n:
            pages = self._take(after + 1, n, wanted)
        else:
            pages = self._elsewhere(n, wanted)
        for page in pages:
            self._free[page] = 0
        self._n_free -= n
        return cast("list[P]", pages)

    def free(self, pages: Sequence[P]) -> None:
        """Give pages back. What was hoped for behind them is plainly free again.

        Raises:
            ValueError: a page is the sink, out of range, or free already; nothing is given back.
        """
        wrong = [p for p in pages if not 0 < p < self.n_pages or self._free[p]]
        if wrong or len(set(pages)) != len(pages):
            raise ValueError(f"pages {wrong or pages} are not allocated (each once)")
        for start, end in _runs(pages):
            self._free[start:end] = b"\x01" * (end - start)
            self._give(start, end)
        self._n_free += len(pages)

    def forget(self, page: P) -> None:
        """Nobody hopes any longer for the free pages behind ``page``."""
        length = self._hoped.remove(page + 1)
        if length:
            self._give(page + 1, page + 1 + length)

    def runs(self) -> Iterator[tuple[int, int]]:
        """All runs of free pages as (start, length); hoped-for ones are separate. For checks."""
        yield from self._plain
        yield from self._hoped

    def _length_at(self, start: int) -> int:
        return self._plain.length_at(start) or self._hoped.length_at(start)

    def _take(self, start: int, n: int, wanted: int) -> list[int]:
        """Pages ``[start, start + n)`` from the front of the run there; what follows up to
        ``wanted`` is hoped for."""
        length = self._plain.remove(start)
        if not length:
            length = wanted = self._hoped.remove(start)
        wanted = min(wanted, length)
        self._hoped.add(start + n, wanted - n)
        self._plain.add(start + wanted, length - wanted)
        return list(range(start, start + n))

    def _elsewhere(self, n: int, wanted: int) -> list[int]:
        start = self._plain.smallest(wanted)
        if start is not None:
            return self._take(start, n, wanted)
        start, length = self._plain.longest()
        hoped_start, hoped = self._hoped.longest()
        share = max(n, min(wanted, hoped // 2))
        if length >= n and length >= min(share, hoped):
            return self._take(start, n, wanted)
        if hoped < n:
            return self._scattered(n)
        # The front of a hoped-for run stays with whoever grows into it.
        self._hoped.remove(hoped_start)
        self._hoped.add(hoped_start, hoped - share)
        start = hoped_start + hoped - share
        self._hoped.add(start + n, share - n)
        return list(range(start, start + n))

    def _scattered(self, n: int) -> list[int]:
        """``n`` pages in few pieces, the longest first, hoped-for ones last."""
        pages: list[int] = []
        while len(pages) < n:
            start, length = self._plain.longest()
            if not length:
                start, length = self._hoped.longest()
            some = min(length, n - len(pages))
            pages += self._take(start, some, some)
        return pages

    def _give(self, start: int, end: int) -> None:
        """Enter ``[start, end)`` as plainly free, in one run with what lies beside it."""
        before = self._plain.start_of_end(start)
        if before is not None:
            self._plain.remove(before)
            start = before
        # Whoever owned the page in front of a hoped-for run has just given it back.
        end += self._hoped.remove(end)
        end += self._plain.remove(end)
        self._plain.add(start, end - start)


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """``pages`` as half-open ranges, in the order given, rising or falling."""
    start = end = -1
    for page in pages:
        if page == end:
            end += 1
        elif page == start - 1:
            start -= 1
        else:
            if start >= 0:
                yield start, end
            start, end = page, page + 1
    if start >= 0:
        yield start, end
