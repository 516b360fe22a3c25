"""A side with a sliding window: few physical pages, bound to virtual pages while they are needed.

A binding is *needed* while the window of some running request reaches its page. After that it is
dropped at once, or, where the prefix cache is on, becomes *idle*: it stays for a later request with
the same prefix until others need its physical page (the page itself may stay cached: a tombstone).
First go those from the middle of a prompt, where no later request is likely to go on; then the one
that became idle first.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Sequence

from firstlight.memory.holding import SpaceUsage
from firstlight.memory.ids import PhysicalPage, VirtualPage
from firstlight.memory.layout import SideSpec
from firstlight.memory.page import PageAllocator
from firstlight.memory.page_map import PageMap


class WindowSide:
    """The bindings of one windowed side.

    Args:
        spec: the side; it has a window.
        n_virtual: ids in the virtual space, the sink included.
        n_pages: physical pages of this side's pool, the sink included.
        keep: whether bindings outlive the requests that needed them.
    """

    def __init__(self, spec: SideSpec, n_virtual: int, n_pages: int, *, keep: bool) -> None:
        self.spec = spec
        self.map = PageMap(n_virtual)
        self.keep = keep
        self.evictions = 0
        self._n_pages = n_pages
        self.reset()

    def reset(self) -> None:
        """Forget every binding, whatever state the books are in."""
        self.map.clear()
        self.allocator: PageAllocator[PhysicalPage] = PageAllocator(
            self._n_pages, name="sliding_pages"
        )
        self._needs = array("i", bytes(4 * self.map.n_virtual))
        self._idle: OrderedDict[VirtualPage, None] = OrderedDict()

    @property
    def n_available(self) -> int:
        """Physical pages that are free or can be made so."""
        return self.allocator.n_free + len(self._idle)

    def bind(self, pages: Sequence[VirtualPage], *, after: VirtualPage, expected: int) -> None:
        """Bind unbound ``pages`` for one request, behind the binding of ``after`` if possible.

        Args:
            expected: bindings that the request will need at the same time, these included.

        Raises:
            CapacityError: fewer than that are available; nothing is bound.
        """
        short = len(pages) - self.allocator.n_free
        if 0 < short <= len(self._idle):
            self._evict(short)
        behind = self.map.physical(after) or None
        physical = self.allocator.allocate(len(pages), after=behind, expected=expected)
        for page, place in zip(pages, physical, strict=True):
            self.map.bind(page, place)
            self._needs[page] = 1

    def need(self, pages: Sequence[VirtualPage]) -> None:
        """One more request needs the bindings of ``pages``, which exist."""
        for page in pages:
            self._needs[page] += 1
            self._idle.pop(page, None)

    def leave(self, pages: Sequence[VirtualPage], *, soon: bool = False) -> None:
        """One request less needs the bindings of ``pages``.

        Args:
            soon: no later request is likely to go on from here: these are evicted before others.
        """
        unneeded: list[VirtualPage] = []
        for page in pages:
            self._needs[page] -= 1
            if not self._needs[page]:
                unneeded.append(page)
        if self.keep:
            self._idle.update(dict.fromkeys(unneeded))
            for page in reversed(unneeded) if soon else ():
                self._idle.move_to_end(page, last=False)
        else:
            self.allocator.free([self.map.unbind(page) for page in unneeded])

    def forget_growth(self, page: VirtualPage) -> None:
        """The request whose last page is ``page`` will not grow any more."""
        if self.map.is_bound(page):
            self.allocator.forget(self.map.physical(page))

    def drop(self, pages: Sequence[VirtualPage]) -> None:
        """Virtual ``pages`` are free again: their idle bindings end."""
        bound = [page for page in pages if self.map.is_bound(page)]
        for page in bound:
            del self._idle[page]
        self.allocator.free([self.map.unbind(page) for page in bound])

    def hand_over(self, page: VirtualPage, heir: VirtualPage) -> None:
        """Let ``heir``, which has the same contents, take over the idle binding of ``page``.

        Nothing happens if ``page`` has none or ``heir`` has one already.
        """
        if page in self._idle and not self.map.is_bound(heir):
            del self._idle[page]
            self.map.bind(heir, self.map.unbind(page))
            self._idle[heir] = None

    def idle(self) -> list[VirtualPage]:
        """Pages with idle bindings, the next to be evicted first. For checks."""
        return list(self._idle)

    def needs(self) -> Sequence[int]:
        """For each virtual page, how many requests need its binding. For checks."""
        return self._needs

    def usage(self) -> SpaceUsage:
        """Pages of this side's pool by state."""
        free, cached = self.allocator.n_free, len(self._idle)
        held = self.allocator.n_pages - 1 - free - cached
        return SpaceUsage(self.spec.name, free, cached, held, self.evictions)

    def _evict(self, n: int) -> None:
        pages = [self._idle.popitem(last=False)[0] for _ in range(n)]
        self.allocator.free([self.map.unbind(page) for page in pages])
        self.evictions += n
