"""Which sequences of pages are cached.

A tree of pages: the path to a page spells everything in front of it, so a page's key need only say
what the page itself holds. One node a page (edges of one page, not of runs): nodes are never split,
so a page keeps its node for as long as it is cached and every operation costs what it touches.

Pages that only the tree holds are *idle*. They lie in order of last use with each page after all
that continue it, so the one to evict is always the first, and it has no child. Whoever holds a page
holds its ancestors too; hence a page in use is never behind an idle one, and all idle pages can be
evicted one after another.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from firstlight.memory.ids import VIRTUAL_SINK, VirtualPage
from firstlight.memory.prefix_key import PageKey, PrefixKey


@dataclass(slots=True)
class _Node:
    parent: VirtualPage
    key: PageKey
    children: dict[PageKey, VirtualPage] = field(default_factory=dict)


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

    def insert(self, parent: VirtualPage, key: PageKey, page: VirtualPage) -> None:
        """Cache ``page``, which is in use, behind ``parent``.

        Raises:
            ValueError: the page is cached already, or another one is under that key.
        """
        node = self._node(parent)
        if page in self._nodes or page == VIRTUAL_SINK or key in node.children:
            raise ValueError(f"page {page} or its contents are cached already")
        node.children[key] = page
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
        node = self._nodes.pop(page)
        del self._node(node.parent).children[node.key]
        return page

    def clear(self) -> list[VirtualPage]:
        """Forget everything; the pages that were cached."""
        pages = list(self._nodes)
        self._nodes.clear()
        self._root.children.clear()
        self._idle.clear()
        return pages

    def items(self) -> Iterator[tuple[VirtualPage, VirtualPage, PageKey]]:
        """Every cached page with its parent and key. For checks."""
        for page, node in self._nodes.items():
            yield page, node.parent, node.key

    def idle(self) -> list[VirtualPage]:
        """Idle pages, the next to be evicted first. For checks."""
        return list(self._idle)

    def _node(self, page: VirtualPage) -> _Node:
        return self._root if page == VIRTUAL_SINK else self._nodes[page]
