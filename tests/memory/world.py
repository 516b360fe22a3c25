"""A model of requests over a ``KVMemory`` that writes and reads what pages contain.

Every position's key is stood for by what it depends on, the whole prefix up to it: so a page that
is read under a wrong prefix, after a wrong eviction or through a wrong map shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from firstlight.core.span import Span
from firstlight.memory import Holding, KVLayout, KVMemory, MediaKey, PrefixKey
from firstlight.memory.integrity import check

IMAGE = -7  # the placeholder id that all pictures share


@dataclass(slots=True, eq=False)
class Request:
    ids: list[int]
    media: list[MediaKey]
    key: PrefixKey
    prefixes: list[int]
    arrival: int
    holding: Holding | None = None
    computed: int = 0


@dataclass(slots=True)
class World:
    """Requests, and for each side what lies in each physical token slot."""

    memory: KVMemory
    running: list[Request] = field(default_factory=list)
    waiting: list[Request] = field(default_factory=list)
    slots: list[dict[int, int]] = field(default_factory=list)
    arrivals: int = 0
    hits: int = 0
    inside: int = 0  # of them, those that end inside a page
    preempted: int = 0

    @classmethod
    def of(
        cls,
        windows: list[int | None],
        n_pages: int,
        window_pages: int,
        page_size: int,
        prefix_cache: bool = True,
        by_token: bool = True,
    ) -> World:
        layout = KVLayout.of(windows, 1000)
        sides = [n_pages if side.window is None else window_pages for side in layout.sides]
        slots: list[dict[int, int]] = [{} for _ in layout.sides]

        def copy(places: Sequence[tuple[int, int]], rows: int) -> None:
            assert 0 < rows < page_size or page_size == rows
            for side, (source, target) in zip(slots, places, strict=True):
                assert source != target
                for row in range(rows):
                    side[target * page_size + row] = side[source * page_size + row]

        memory = KVMemory(
            layout, n_pages, sides, page_size, prefix_cache, copy=copy if by_token else None
        )
        return cls(memory, slots=slots)

    def apply(self, op: int, a: int, b: int) -> None:
        """One operation chosen by small integers, then all checks."""
        if op == 0 or not self.running:
            self.add(a, b)
        elif op <= 6:
            self.step(self.running[a % len(self.running)], 1 + b % 9, publish_first=op % 2 == 0)
        elif op == 7:
            self.leave(self.running[a % len(self.running)], publish=b % 3 > 0)
        elif op == 8:
            self.readmit()
        elif b % 8 == 0:
            self.memory.flush()
        self.check()

    def add(self, a: int, b: int) -> None:
        """A request of shared beginnings, perhaps with pictures, and a tail of its own or not."""
        ids: list[int] = [1, 2, 3, 4, 5, 6, 7, 8, 9][: 3 + a % 7]
        media: list[MediaKey] = []
        for n in range(b % 3):
            start, name = len(ids), f"picture {(a // 7 + n) % 2}"
            ids += [IMAGE] * 4 + [99] + [IMAGE] * 3  # a separator between two spans
            spans = (Span(n, start, start + 4, 0), Span(n, start + 5, start + 8, 4))
            media.append(MediaKey(name, spans))
        ids += [10 + b // 3 % 3] * (1 + a // 14 % 5)
        self.arrivals += 1
        key = PrefixKey(ids, media, self.memory.page_size)
        request = Request(ids, media, key, [], self.arrivals)
        self._see(request)
        self.waiting.append(request)
        self.readmit()

    def readmit(self) -> None:
        if len(self.running) < 5 and self.waiting:
            self.waiting.sort(key=lambda request: request.arrival)
            request = self.waiting.pop(0)
            limit = len(request.ids) - 1
            request.holding = self.memory.start(request.key, limit, len(request.ids) + 5)
            if request.arrival % 9 == 0:  # it is admitted in vain first, which loses nothing
                found = request.holding.cached
                self.memory.release(request.holding)
                self.check()
                request.holding = self.memory.start(request.key, limit)
                assert request.holding.cached >= found
            request.computed = request.holding.cached
            self.running.append(request)
            self.hits += request.computed > 0
            self.inside += request.computed % self.memory.page_size > 0
            assert request.computed < len(request.ids)
            assert not request.key.ends_inside(request.computed)
            self._read(request, request.computed, written=request.computed)

    def step(self, request: Request, n: int, publish_first: bool) -> None:
        """Compute up to ``n`` positions; make room as a scheduler would if there is none."""
        memory, holding = self.memory, request.holding
        assert holding is not None
        if request.computed == len(request.ids):
            request.ids.append(20 + n % 2)
            self._see(request)
        start, end = request.computed, min(request.computed + n, len(request.ids))
        while not self._room(request, start, end):
            others = [r for r in self.running if r is not request]
            if not others:
                self.leave(request, publish=True)  # its pool is too small for it
                return
            self.preempt(max(others, key=lambda r: r.arrival))
        for side, slot in self._slots(request, range(start, end)):
            for position, at in zip(range(start, end), slot, strict=True):
                self.slots[side][at] = request.prefixes[position]
        for position in range(start, end):
            self._read(request, position, written=position + 1)
        request.computed = end
        if publish_first:
            memory.publish(holding, request.key, end)
        memory.advance(holding, end)
        if not publish_first and n % 2:
            memory.publish(holding, request.key, end)

    def preempt(self, request: Request) -> None:
        self.leave(request, publish=True)
        request.holding, request.computed = None, 0
        self.waiting.append(request)
        self.preempted += 1

    def leave(self, request: Request, publish: bool) -> None:
        assert request.holding is not None
        self.running.remove(request)
        if publish:
            self.memory.publish(request.holding, request.key, request.computed)
        self.memory.release(request.holding)
        self.memory.release(request.holding)

    def check(self) -> None:
        check(self.memory, [r.holding for r in self.running if r.holding is not None])

    def close(self) -> None:
        """All requests end, the cache is emptied: everything must be free again."""
        for request in list(self.running):
            self.leave(request, publish=request.arrival % 2 == 0)
        self.check()
        assert self.memory.usage().pages.held == 0
        assert self.memory.n_free == self.memory.allocator.n_pages - 1
        self.memory.flush()
        self.check()
        assert self.memory.allocator.n_free == self.memory.allocator.n_pages - 1
        for side in self.memory.windows:
            assert side.allocator.n_free == side.allocator.n_pages - 1

    def _room(self, request: Request, start: int, end: int) -> bool:
        memory, holding = self.memory, request.holding
        assert holding is not None
        free, held = memory.n_free, len(holding.pages)
        if not memory.reserve(holding, end, expected=len(request.ids) + 5):
            assert (memory.n_free, len(holding.pages)) == (free, held)
            assert -(-end // memory.page_size) - held > free
            return False
        before = memory.usage(), list(holding.bound)
        if not memory.prepare(holding, start, end):
            assert (memory.usage(), holding.bound) == before
            return False
        return True

    def _see(self, request: Request) -> None:
        """What each new position depends on: all that lies in front of it, and itself."""
        contents: list[object] = list(request.ids)
        for item in request.media:
            for span in item.spans:
                for i in range(len(span)):
                    contents[span.start + i] = (item.identity, span.row + i)
        for position in range(len(request.prefixes), len(contents)):
            before = request.prefixes[-1] if position else 0
            request.prefixes.append(hash((before, contents[position])))

    def _slots(self, request: Request, positions: range) -> list[tuple[int, list[int]]]:
        assert request.holding is not None
        size = self.memory.page_size
        pages = np.array(request.holding.pages, dtype=np.int64)
        at = np.arange(positions.start, positions.stop)
        slots = pages[at // size] * size + at % size
        return [
            (side, found.translate_slots(slots, size).tolist())
            for side, found in enumerate(self.memory.maps)
        ]

    def _read(self, request: Request, position: int, written: int) -> None:
        """A query at ``position`` finds its own keys at what is written of all that it sees."""
        for side, spec in enumerate(self.memory.layout.sides):
            seen = range(spec.first_seen(position), written)
            slots = dict(self._slots(request, seen))[side]
            found = [self.slots[side].get(slot) for slot in slots]
            assert found == request.prefixes[seen.start : seen.stop]
            assert not any(slot < self.memory.page_size for slot in slots)
