"""Which sequences of pages are cached.

A tree of pages: the path to a page spells everything in front of it, so a page's key need only say
what the page itself holds. One node a page (edges of one page, not of runs): nodes are never split,
so a page keeps its node for as long as it is cached and every operation costs what it touches.

The last page of a finished request is there with as many positions as it has. Nothing lies behind
such a page, and nobody holds it: whoever goes on from it takes it out, or copies from it.

Pages that only the tree holds are *idle*. They lie in order of last use with each page after all
that continue it, so the one to evict is always the first, and it has no child. Whoever holds a page
holds its ancestors too; hence a page in use is never behind an idle one, and all idle pages can be
evicted one after another.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from firstlight.memory.ids import VIRTUAL_SINK, VirtualPage
from firstlight.memory.prefix_key import (
    Contents,
    PageKey,
    PrefixKey,
    common_length,
    contents_of,
)


@dataclass(slots=True)
class _Node:
    """``order``: the keys of ``children`` by what stands at their positions, one after another. So
    the longest common beginning with any contents is that of a neighbour of their place in it."""

    parent: VirtualPage
    key: PageKey
    children: dict[PageKey, VirtualPage] = field(default_factory=dict)
    order: list[PageKey] = field(default_factory=list)

    def add(self, key: PageKey, page: VirtualPage) -> None:
        self.children[key] = page
        insort(self.order, key, key=contents_of)

    def remove(self, key: PageKey) -> None:
        del self.children[key]
        del self.order[bisect_left(self.order, contents_of(key), key=contents_of)]

    def nearest(self, contents: Contents) -> tuple[int, PageKey]:
        """How many first positions a child has in common with these, at most, and its key."""
        at = bisect_left(self.order, contents, key=contents_of)
        found = [(common_length(contents_of(k), contents), k) for k in self.order[at : at + 1]]
        if at:
            before = self.order[at - 1]
            found.append((common_length(contents_of(before), contents), before))
        return max(found, key=lambda pair: pair[0], default=(0, ()))


class PrefixTree:
    """Cached pages by content; the sink stands for the root."""

    def __init__(self) -> None:
        self._nodes: dict[VirtualPage, _Node] = {}
        self._root = _Node(VIRTUAL_SINK, ())
        self._idle: OrderedDict[VirtualPage, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, page: VirtualPage) -> bool:
        return page in self._nodes

    @property
    def n_idle(self) -> int:
        """Cached pages that nobody uses."""
        return len(self._idle)

    def match(self, key: PrefixKey, n_pages: int) -> list[VirtualPage]:
        """The longest cached path along ``key``, of at most ``n_pages`` pages."""
        pages: list[VirtualPage] = []
        node = self._root
        while len(pages) < min(n_pages, key.n_pages):
            page = node.children.get(key.page(len(pages)))
            if page is None:
                break
            pages.append(page)
            node = self._nodes[page]
        return pages

    def child(self, parent: VirtualPage, key: PageKey) -> VirtualPage | None:
        """The page cached under ``key`` behind ``parent`` (the sink: at the start), if any."""
        return self._node(parent).children.get(key)

    def nearest(self, parent: VirtualPage, key: PageKey) -> tuple[VirtualPage, int]:
        """The page behind ``parent`` (the sink: at the start) that begins most like ``key``.

        Returns:
            the page, and how many positions from its first on are the same; 0 if none has any.
        """
        node = self._node(parent)
        rows, nearest = node.nearest(contents_of(key))
        return (node.children[nearest], rows) if rows else (VIRTUAL_SINK, 0)

    def n_positions(self, page: VirtualPage) -> int:
        """Positions that are cached in ``page``, which is: the page size if it is full."""
        return len(contents_of(self._nodes[page].key))

    def insert(self, parent: VirtualPage, key: PageKey, page: VirtualPage) -> None:
        """Cache ``page``, which is in use, behind ``parent``.

        Raises:
            ValueError: the page is cached already, or another one is under that key.
        """
        node = self._node(parent)
        if page in self._nodes or page == VIRTUAL_SINK or key in node.children:
            raise ValueError(f"page {page} or its contents are cached already")
        node.add(key, page)
        self._nodes[page] = _Node(parent, key)

    def use(self, pages: Sequence[VirtualPage]) -> None:
        """Somebody holds ``pages``: they are not idle."""
        for page in pages:
            self._idle.pop(page, None)

    def rest(self, pages: Sequence[VirtualPage]) -> None:
        """Nobody uses ``pages`` any more; given deepest first, they were used last of all."""
        for page in pages:
            self._idle[page] = None
            self._idle.move_to_end(page)

    def is_idle(self, page: VirtualPage) -> bool:
        """Whether only the tree holds ``page``."""
        return page in self._idle

    def evict(self) -> VirtualPage:
        """Forget the idle page that was not used for longest and return it.

        Raises:
            KeyError: no page is idle.
        """
        page, _ = self._idle.popitem(last=False)
        self._forget(page)
        return page

    def take_out(self, page: VirtualPage) -> None:
        """Forget an idle ``page`` that nothing lies behind.

        Raises:
            KeyError: it is not idle.
        """
        del self._idle[page]
        self._forget(page)

    def clear(self) -> list[VirtualPage]:
        """Forget everything; the pages that were cached."""
        pages = list(self._nodes)
        self._nodes.clear()
        self._root = _Node(VIRTUAL_SINK, ())
        self._idle.clear()
        return pages

    def items(self) -> Iterator[tuple[VirtualPage, VirtualPage, PageKey]]:
        """Every cached page with its parent and key. For checks."""
        for page, node in self._nodes.items():
            yield page, node.parent, node.key

    def idle(self) -> list[VirtualPage]:
        """Idle pages, the next to be evicted first. For checks."""
        return list(self._idle)

    def _forget(self, page: VirtualPage) -> None:
        node = self._nodes.pop(page)
        self._node(node.parent).remove(node.key)

    def _node(self, page: VirtualPage) -> _Node:
        return self._root if page == VIRTUAL_SINK else self._nodes[page]
