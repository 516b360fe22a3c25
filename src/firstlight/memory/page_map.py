"""From virtual to physical pages, one map a side.

A map is indexed by *page* and its entries are page ids already: nothing is shifted or scaled a
second time, at any page size. It has one entry for every id of the *virtual* space, however few
physical pages its own side owns, since any virtual page may be asked for. Entries that are
missing, unbound again (tombstones) or negative read the sink.
"""

from __future__ import annotations

from array import array
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from firstlight.memory.ids import SINK_PAGE, PhysicalPage, VirtualPage

PageArray = NDArray[np.int32]
AnyIntegers = NDArray[np.signedinteger]


def translate_pages(table: AnyIntegers, pages: AnyIntegers) -> PageArray:
    """Physical pages of virtual ``pages`` (any shape) by ``table`` ``[virtual pages]``.

    Negative pages read entry 0, negative entries (tombstones) mean the sink.

    Raises:
        IndexError: a page lies beyond the table.
    """
    found = np.maximum(table.take(np.maximum(pages, 0)), SINK_PAGE)
    return found.astype(np.int32, copy=False)


def translate_slots(table: AnyIntegers, slots: AnyIntegers, page_size: int) -> NDArray[np.int64]:
    """Physical token slots ``table[t // P] * P + t % P`` of virtual token slots (any shape).

    Negative slots read the first slot of entry 0.

    Raises:
        IndexError: a slot lies beyond the table's last page.
    """
    live = np.maximum(slots, 0).astype(np.int64, copy=False)
    pages = translate_pages(table, live // page_size).astype(np.int64)
    return pages * page_size + live % page_size


class Translation(Protocol):
    """What attention's metadata needs of a side's map."""

    @property
    def n_virtual(self) -> int:
        """Size of the virtual id space, the sink included."""

    def is_bound(self, page: VirtualPage) -> bool:
        """Whether this side holds keys for a virtual page."""

    def physical(self, page: VirtualPage) -> PhysicalPage:
        """Where a virtual page's keys lie; the sink if nowhere."""

    def translate(self, pages: AnyIntegers) -> PageArray:
        """Physical pages of virtual pages, in any shape."""

    def translate_slots(self, slots: AnyIntegers, page_size: int) -> NDArray[np.int64]:
        """Physical token slots of virtual token slots, in any shape."""


class PageMap:
    """The map of a side that binds its own physical pages on demand.

    Args:
        n_virtual: ids in the virtual space (not in this side's own pool), the sink included.
    """

    def __init__(self, n_virtual: int) -> None:
        # Two views of the same memory: single entries are quick in one, whole tables in the other.
        self._entries = array("i", bytes(4 * n_virtual))
        self._table = np.frombuffer(self._entries, dtype=np.intc)

    @property
    def n_virtual(self) -> int:
        """Size of the virtual id space, the sink included."""
        return len(self._entries)

    def clear(self) -> None:
        """Unbind everything."""
        self._table[:] = SINK_PAGE

    def bind(self, page: VirtualPage, physical: PhysicalPage) -> None:
        """Let ``page`` lie at ``physical``.

        Raises:
            ValueError: a page is a sink or out of range, or ``page`` is bound already.
        """
        if not 0 < page < len(self._entries) or physical <= SINK_PAGE:
            raise ValueError(f"virtual page {page} cannot be bound to physical page {physical}")
        if self._entries[page]:
            raise ValueError(f"virtual page {page} is bound to {self._entries[page]} already")
        self._entries[page] = physical

    def unbind(self, page: VirtualPage) -> PhysicalPage:
        """Forget where ``page`` lies (a tombstone stays) and return where it was.

        Raises:
            ValueError: it was not bound.
        """
        if not self.is_bound(page):
            raise ValueError(f"virtual page {page} is not bound")
        physical = self._entries[page]
        self._entries[page] = SINK_PAGE
        return PhysicalPage(physical)

    def is_bound(self, page: VirtualPage) -> bool:
        """Whether this side holds keys for ``page``; never true of the sink.

        Raises:
            IndexError: the page is outside the virtual space.
        """
        return page >= 0 and self._entries[page] != SINK_PAGE

    def physical(self, page: VirtualPage) -> PhysicalPage:
        """Where ``page`` lies: the sink if it is unbound or negative.

        Raises:
            IndexError: the page is outside the virtual space.
        """
        return PhysicalPage(self._entries[page]) if page >= 0 else SINK_PAGE

    def translate(self, pages: AnyIntegers) -> PageArray:
        """Physical pages of virtual ``pages``, any shape; unbound and negative ones: the sink.

        Raises:
            IndexError: a page is outside the virtual space.
        """
        return translate_pages(self._table, pages)

    def translate_slots(self, slots: AnyIntegers, page_size: int) -> NDArray[np.int64]:
        """Physical token slots of virtual token ``slots``, any shape; negative ones: slot 0.

        Raises:
            IndexError: a slot is outside the virtual space.
        """
        return translate_slots(self._table, slots, page_size)

    def bound(self) -> dict[VirtualPage, PhysicalPage]:
        """All bindings, by virtual page. Reads the whole table: for checks, not for steps."""
        return {
            VirtualPage(int(page)): PhysicalPage(self._entries[int(page)])
            for page in np.flatnonzero(self._table)
        }


class IdentityMap:
    """The map of the full side: every virtual page lies at the physical page of the same number."""

    def __init__(self, n_virtual: int) -> None:
        self.n_virtual = n_virtual

    def is_bound(self, page: VirtualPage) -> bool:
        """Always true but for the sink and what is outside the space."""
        return 0 < page < self.n_virtual

    def physical(self, page: VirtualPage) -> PhysicalPage:
        """The page of the same number; the sink for a negative one.

        Raises:
            IndexError: the page is outside the virtual space.
        """
        if page >= self.n_virtual:
            raise IndexError(f"virtual page {page} is outside a space of {self.n_virtual}")
        return PhysicalPage(max(page, SINK_PAGE))

    def translate(self, pages: AnyIntegers) -> PageArray:
        """The same numbers as int32, negative ones as the sink.

        Raises:
            IndexError: a page is outside the virtual space.
        """
        return self._inside(pages, self.n_virtual).astype(np.int32, copy=False)

    def translate_slots(self, slots: AnyIntegers, page_size: int) -> NDArray[np.int64]:
        """The same numbers as int64, negative ones as slot 0.

        Raises:
            IndexError: a slot is outside the virtual space.
        """
        return self._inside(slots, self.n_virtual * page_size).astype(np.int64, copy=False)

    def _inside(self, numbers: AnyIntegers, limit: int) -> AnyIntegers:
        found: AnyIntegers = np.maximum(numbers, 0)
        if found.size and int(found.max()) >= limit:
            raise IndexError(f"{int(found.max())} is outside a space of {limit}")
        return found
