"""Who owns which page."""

from __future__ import annotations

from firstlight.errors import CapacityError, ConfigError
from firstlight.memory.ids import PhysicalPage


class PageAllocator:
    """Hands out pages ``1 .. n_pages - 1``; page 0 is the sink and never leaves.

    Runs of consecutive pages are preferred: attention reads a run as one view and has to gather
    scattered pages.
    """

    def __init__(self, n_pages: int) -> None:
        if n_pages < 2:
            raise ConfigError(f"kv_pages = {n_pages}; accepted: at least 2 (page 0 is the sink)")
        self.n_pages = n_pages
        self._free = bytearray([0] + [1] * (n_pages - 1))
        self._n_free = n_pages - 1

    @property
    def n_free(self) -> int:
        """Pages that can be allocated now."""
        return self._n_free

    def allocate(self, n: int) -> list[PhysicalPage]:
        """Take ``n`` pages, in one run if there is one that long.

        Raises:
            CapacityError: fewer than ``n`` pages are free; nothing is taken.
        """
        if n > self._n_free:
            raise CapacityError(
                f"{n} KV pages are needed and {self._n_free} of {self.n_pages - 1} are free"
            )
        start = self._free.find(b"\x01" * n)
        pages = list(range(start, start + n)) if start >= 0 else self._scattered(n)
        for page in pages:
            self._free[page] = 0
        self._n_free -= n
        return [PhysicalPage(page) for page in pages]

    def free(self, pages: list[PhysicalPage]) -> None:
        """Give pages back.

        Raises:
            ValueError: a page is the sink, out of range, or free already; nothing is given back.
        """
        wrong = [p for p in pages if not 0 < p < self.n_pages or self._free[p]]
        if wrong or len(set(pages)) != len(pages):
            raise ValueError(f"pages {wrong or pages} are not allocated (each once)")
        for page in pages:
            self._free[page] = 1
        self._n_free += len(pages)

    def _scattered(self, n: int) -> list[int]:
        pages: list[int] = []
        at = 0
        while len(pages) < n:
            at = self._free.find(1, at)
            pages.append(at)
            at += 1
        return pages
