"""The KV memory of many requests: pages, their bindings on every side, and the prefix cache.

One allocation mints a *virtual page*. On the side ``full`` it lies at the physical page of the same
number; a windowed side binds it to a page of its own smaller pool while a window reaches it. Each
virtual page counts who refers to it: every request that holds it, and the prefix tree. At zero it
is free; if only the tree is left, it can be evicted.

No operation looks at the whole pool, the whole tree or all requests: each costs in proportion to
the pages it takes, gives or matches.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from firstlight.errors import ConfigError
from firstlight.memory.hit import Hit, find_hit
from firstlight.memory.holding import Holding, MemoryUsage, SpaceUsage
from firstlight.memory.ids import VIRTUAL_SINK, PhysicalPage, VirtualPage, pages_for
from firstlight.memory.layout import KVLayout
from firstlight.memory.page import PageAllocator
from firstlight.memory.page_map import IdentityMap, Translation
from firstlight.memory.prefix_key import PrefixKey
from firstlight.memory.prefix_tree import PrefixTree
from firstlight.memory.window_side import WindowSide

CopyRows = Callable[[Sequence[tuple[PhysicalPage, PhysicalPage]], int], None]
"""Copies the first positions, as many as the second argument says, of one page into another: on
each side of the layout from the first of its two physical pages to the second."""

# When cached pages have to go, this many tokens' worth more go with them for a request that expects
# to grow, so that its next pages can follow in the same run.
GROWTH_TOKENS = 256


class KVMemory:
    """Pages for requests that come and go.

    Args:
        layout: the model's sides.
        n_pages: ids in the virtual space, the sink included.
        side_pages: physical pages of each side, its sink included; ``n_pages`` for ``full``.
        page_size: tokens a page.
        prefix_cache: whether pages of finished requests are kept for others.
        copy: copies keys and values within the pools. With it, what is found in the prefix cache
            may end inside a page; without it, hits are full pages.

    Raises:
        ConfigError: the numbers do not fit the layout or each other.
    """

    def __init__(
        self,
        layout: KVLayout,
        n_pages: int,
        side_pages: Sequence[int],
        page_size: int,
        prefix_cache: bool,
        copy: CopyRows | None = None,
    ) -> None:
        if page_size < 1:
            raise ConfigError(f"page_size = {page_size}; accepted: at least 1")
        if len(side_pages) != len(layout.sides):
            raise ConfigError(f"{len(side_pages)} page counts for {len(layout.sides)} KV sides")
        self.layout = layout
        self.page_size = page_size
        self.prefix_cache = prefix_cache
        self._copy = copy
        self._forget_all(n_pages)
        maps: list[Translation] = []
        windows: list[WindowSide] = []
        for spec, pages in zip(layout.sides, side_pages, strict=True):
            if spec.window is None:
                if pages != n_pages:
                    raise ConfigError(
                        f"the side {spec.name} has {pages} pages; it needs one for each of the "
                        f"{n_pages} virtual pages"
                    )
                maps.append(IdentityMap(n_pages))
            else:
                windows.append(WindowSide(spec, n_pages, pages, keep=prefix_cache))
                maps.append(windows[-1].map)
        self.maps = tuple(maps)
        self.windows = tuple(windows)
        self._evictions = self._lookups = self._hits = self._cached_tokens = 0

    @property
    def n_free(self) -> int:
        """Virtual pages that are free or can be evicted."""
        return self.allocator.n_free + self.tree.n_idle

    def pages_needed(self, capacity: int, chunk: int) -> tuple[int, ...]:
        """Pages that a request of ``capacity`` tokens, computed at most ``chunk`` tokens a step,
        needs at once when it runs alone: virtual ones first, then those of each windowed side.

        It can always run alone if each number is below the pool's (which includes a sink).
        """
        whole = pages_for(capacity, self.page_size)
        needed = [whole]
        for side in self.windows:
            seen = (side.spec.window or 0) - 1 + chunk
            needed.append(min(whole, (seen + self.page_size - 2) // self.page_size + 1))
        return tuple(needed)

    def start(self, key: PrefixKey, limit: int, expected: int = 0) -> Holding:
        """A new request's holding, with what the cache has of its prefix; cannot fail.

        See :func:`firstlight.memory.hit.find_hit` for where a hit may end. Where that is inside a
        page, the request gets a page of its own with those positions in it: a cached page that is
        not full and that nobody else is likely to go on from, or else a copy.

        Args:
            limit: tokens that the hit may cover at most.
            expected: as in :meth:`reserve`.
        """
        if not self.prefix_cache:
            return Holding(bound=[range(0)] * len(self.windows), looked_up=key.length > 0)
        for by_token in (self._copy is not None, False):
            hit = find_hit(self.tree, self.windows, key, limit, by_token=by_token)
            holding = self._hold(hit, pages_for(expected, self.page_size))
            if not hit.rows or self._hold_rows(holding, hit, key):
                break
            self.release(holding)
        holding.looked_up = key.length > 0
        return holding

    def _hold(self, hit: Hit, expected: int) -> Holding:
        """A holding of the full pages of a hit."""
        pages = list(hit.pages)
        holding = Holding(
            pages=pages,
            published=len(pages),
            known=hit.known,
            cached=hit.end,
            expected=expected,
        )
        self.tree.use(pages)
        for page in pages:
            self.counts[page] += 1
        for side in self.windows:
            first = side.spec.first_seen(hit.end) // self.page_size
            holding.bound.append(range(first, len(pages)))
            side.need(pages[first:])
        return holding

    def _hold_rows(self, holding: Holding, hit: Hit, key: PrefixKey) -> bool:
        """The last positions of a hit, in a page of the request's own; False if there is none."""
        spare = self.tree.is_idle(hit.source) and (
            hit.is_longest or self.tree.n_positions(hit.source) == hit.rows
        )
        if spare and self.tree.n_positions(hit.source) < self.page_size:
            # What this loses is at most the end of another's answer, and nothing is copied; and
            # most likely it lies in one run with the pages before it.
            self.tree.take_out(hit.source)
            holding.pages.append(hit.source)
            for i, side in enumerate(self.windows):
                side.need([hit.source])
                holding.bound[i] = range(holding.bound[i].start, len(holding.pages))
        elif not self._copy_rows(holding, hit, key):
            return False
        holding.offered = key, hit.end
        return True

    def _copy_rows(self, holding: Holding, hit: Hit, key: PrefixKey) -> bool:
        """Take a page and copy positions of a cached one, which is not evicted meanwhile."""
        assert self._copy is not None
        self.tree.use([hit.source])
        self.counts[hit.source] += 1
        for side in self.windows:
            side.need([hit.source])
        # A prompt that finds no room now leaves the cache as it is.
        need = pages_for(key.length, self.page_size) - len(holding.pages)
        found = self.n_free >= need and all(side.n_available > 0 for side in self.windows)
        if found:
            self._grow(holding, 1)
            for i in range(len(self.windows)):
                self._bind(holding, i, len(holding.pages))
            page = holding.pages[-1]
            places = [(m.physical(hit.source), m.physical(page)) for m in self.maps]
            self._copy(places, hit.rows)
        for side in self.windows:
            side.leave([hit.source])
        self.counts[hit.source] -= 1
        if self.counts[hit.source] == 1:
            self.tree.rest([hit.source])
        return found

    def reserve(self, holding: Holding, n_tokens: int, expected: int = 0) -> bool:
        """Pages for positions ``[0, n_tokens)``, in one run behind the last page if possible.

        Args:
            expected: tokens that the request may reach; room behind it is left free for as long as
                others find room elsewhere. 0: as said before.

        Returns:
            False if there are too few pages even after evicting; then nothing is taken.

        Raises:
            ValueError: the holding was released.
        """
        if holding.released:
            raise ValueError("the holding was released; start a new one")
        holding.expected = pages_for(expected, self.page_size) or holding.expected
        need = pages_for(n_tokens, self.page_size) - len(holding.pages)
        if need > self.n_free:
            return False
        self._count(holding)
        if need <= 0:
            return True
        self._grow(holding, need)
        return True

    def _grow(self, holding: Holding, need: int) -> None:
        """``need`` more pages, of which there are so many."""
        wanted = max(need, holding.expected - len(holding.pages))
        short = need - self.allocator.n_free
        if short > 0:
            growth = min(wanted - need, pages_for(GROWTH_TOKENS, self.page_size))
            self._evict(min(short + growth, self.tree.n_idle))
        after = holding.pages[-1] if holding.pages else None
        pages = self.allocator.allocate(need, after=after, expected=wanted)
        for page in pages:
            self.counts[page] = 1
        holding.pages += pages

    def prepare(self, holding: Holding, start: int, end: int) -> bool:
        """Bind every windowed side for the positions ``[start, end)`` that a chunk will write.

        Returns:
            False if a side has too few pages even after evicting idle bindings; then nothing is
            taken on any side.

        Raises:
            ValueError: pages for these positions are not reserved, or earlier positions were
                never prepared.
        """
        last = pages_for(end, self.page_size)
        if last > len(holding.pages):
            raise ValueError(f"positions up to {end} need {last} pages; {len(holding.pages)} held")
        for side, bound in zip(self.windows, holding.bound, strict=True):
            if start > bound.stop * self.page_size:
                raise ValueError(f"positions [{bound.stop * self.page_size}, {start}) are unbound")
            if last - bound.stop > side.n_available:
                return False
        for i in range(len(self.windows)):
            if last > holding.bound[i].stop:
                self._bind(holding, i, last)
        return True

    def _bind(self, holding: Holding, i: int, last: int) -> None:
        """Bind the unbound ones of the first ``last`` pages on windowed side ``i``."""
        side, bound = self.windows[i], holding.bound[i]
        window = pages_for((side.spec.window or 0) + self.page_size, self.page_size)
        side.bind(
            holding.pages[bound.stop : last],
            after=holding.pages[bound.stop - 1] if bound.stop else VIRTUAL_SINK,
            expected=min(holding.expected - bound.stop, last - bound.stop + window),
        )
        holding.bound[i] = range(bound.start, last)

    def advance(self, holding: Holding, computed: int) -> None:
        """Positions ``[0, computed)`` are in memory: bindings that no later query of this request
        sees are not needed any more. With the prefix cache on, they stay until others need them."""
        for i, side in enumerate(self.windows):
            bound = holding.bound[i]
            first = min(side.spec.first_seen(computed) // self.page_size, bound.stop)
            if first > bound.start:
                self._pass(side, holding, bound.start, first)
                holding.bound[i] = range(first, bound.stop)

    def publish(self, holding: Holding, key: PrefixKey, computed: int) -> None:
        """Let others find the full pages of ``[0, computed)``, and after the release what is behind
        them, too; nothing if the cache is off.

        Where pages with the same contents are cached already, at other ids, this request keeps its
        own, and what follows them is cached when it is released.
        """
        if not self.prefix_cache:
            return
        holding.complete = True
        holding.offered = key, min(computed, key.length)
        if holding.deferred:
            return
        n_pages = holding.offered[1] // self.page_size
        self._rewind(holding)
        while holding.published < n_pages:
            at = holding.published
            page, contents = holding.pages[at], key.page(at)
            parent = holding.pages[at - 1] if at else VIRTUAL_SINK
            cached = self.tree.child(parent, contents)
            if cached is None:
                self.tree.insert(parent, contents, page)
                self.counts[page] += 1
            elif cached != page:
                holding.deferred = True
                return
            holding.published += 1

    def release(self, holding: Holding) -> None:
        """Give everything back; cached pages stay until they are evicted. A second call does
        nothing."""
        if holding.released:
            return
        holding.released = True
        for side, bound in zip(self.windows, holding.bound, strict=True):
            side.leave(holding.pages[bound.start : bound.stop])
            if bound:
                side.forget_growth(holding.pages[bound.stop - 1])
        if holding.pages:
            self.allocator.forget(holding.pages[-1])
        path = self._publish_deferred(holding)
        path += self._publish_rows(holding, path)
        for page in holding.pages:
            self.counts[page] -= 1
        self.tree.rest([page for page in reversed(path) if self.counts[page] == 1])
        self._free([page for page in reversed(holding.pages) if not self.counts[page]])
        holding.pages = []
        holding.bound = [range(0)] * len(self.windows)
        holding.offered, holding.deferred = None, False

    def flush(self) -> None:
        """Forget the prefix cache. Requests that run keep their pages, and cache them again when
        they publish."""
        pages = self.tree.clear()
        for page in pages:
            self.counts[page] -= 1
        self._free([page for page in pages if not self.counts[page]])

    def reset(self) -> None:
        """Begin anew with every page free, whatever state the books are in; counts go on.

        For after an exception that may have left an operation half done. Holdings from before are
        void: they must be forgotten and not released.
        """
        self._forget_all(self.allocator.n_pages)
        for side in self.windows:
            side.reset()

    def usage(self) -> MemoryUsage:
        """Pages by state, and what the prefix cache found. Costs nothing that grows."""
        free, cached = self.allocator.n_free, self.tree.n_idle
        held = self.allocator.n_pages - 1 - free - cached
        return MemoryUsage(
            SpaceUsage("virtual", free, cached, held, self._evictions),
            tuple(side.usage() for side in self.windows),
            self._lookups,
            self._hits,
            self._cached_tokens,
        )

    def _forget_all(self, n_pages: int) -> None:
        self.allocator: PageAllocator[VirtualPage] = PageAllocator(n_pages)
        self.tree = PrefixTree()
        self.counts = array("i", bytes(4 * n_pages))

    def _count(self, holding: Holding) -> None:
        """Enter a look-up in the statistics, once a request gets its pages: it may have been
        started in vain before."""
        if self.prefix_cache and holding.looked_up:
            holding.looked_up = False
            self._lookups += 1
            self._hits += holding.cached > 0
            self._cached_tokens += holding.cached

    def _pass(self, side: WindowSide, holding: Holding, start: int, stop: int) -> None:
        """The window of a request has moved past its pages ``[start, stop)``.

        While its prompt is computed these are pages that nobody is likely to go on from, but for
        the window before the point up to which others have asked the same.
        """
        pages, known = holding.pages, holding.known
        if holding.complete:
            side.leave(pages[start:stop])
            return
        low = side.spec.first_seen(known * self.page_size) // self.page_size
        low, high = (min(max(at, start), stop) for at in (low, known))
        side.leave(pages[low:high])
        side.leave([*pages[start:low], *pages[high:stop]], soon=True)

    def _rewind(self, holding: Holding) -> None:
        """After a flush, pages that were published are so no longer."""
        while holding.published and holding.pages[holding.published - 1] not in self.tree:
            holding.published -= 1

    def _publish_deferred(self, holding: Holding) -> list[VirtualPage]:
        """Cache what was deferred, and return the cached path along this request, root first."""
        self._rewind(holding)
        path = holding.pages[: holding.published]
        if holding.deferred and holding.offered:
            key, computed = holding.offered
            for at in range(len(path), computed // self.page_size):
                page, contents = holding.pages[at], key.page(at)
                parent = path[-1] if path else VIRTUAL_SINK
                cached = self.tree.child(parent, contents)
                if cached is None:
                    if self.counts[page] > 1:
                        break  # since a flush another request shares it, but not this path
                    self.tree.insert(parent, contents, page)
                    self.counts[page] += 1
                elif cached != page:
                    for side in self.windows:
                        side.hand_over(page, cached)
                path.append(page if cached is None else cached)
        return path

    def _publish_rows(self, holding: Holding, path: Sequence[VirtualPage]) -> list[VirtualPage]:
        """Cache the page behind ``path``, which is not full, unless another one has as much."""
        if self._copy is None or holding.offered is None:
            return []
        key, computed = holding.offered
        n, rows = divmod(computed, self.page_size)
        if not rows or n != len(path):
            return []
        page, parent = holding.pages[n], path[-1] if path else VIRTUAL_SINK
        contents = key.between(n * self.page_size, computed)
        other, common = self.tree.nearest(parent, contents)
        if common and self.tree.is_idle(other):
            held = self.tree.n_positions(other)
            lost = held < self.page_size and not all(s.map.is_bound(other) for s in self.windows)
            if lost or held == common < rows:
                self.tree.take_out(other)
                self.counts[other] = 0
                self._free([other])
                common = 0
        if common == rows:
            return []
        self.tree.insert(parent, contents, page)
        self.counts[page] += 1
        return [page]

    def _evict(self, n: int) -> None:
        pages = [self.tree.evict() for _ in range(n)]
        for page in pages:
            self.counts[page] = 0
        self._free(pages)
        self._evictions += n

    def _free(self, pages: Sequence[VirtualPage]) -> None:
        for side in self.windows:
            side.drop(pages)
        self.allocator.free(pages)
