"""Requests, an encoder and a memory as the scheduler sees them, without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from firstlight.core.span import Span
from firstlight.engine.scheduling import MediaNeed
from firstlight.memory.holding import Holding, MemoryUsage, SpaceUsage
from firstlight.memory.ids import VirtualPage
from firstlight.memory.layout import KVLayout
from firstlight.memory.prefix_key import MediaKey, PrefixKey


@dataclass(frozen=True, slots=True)
class Need:
    """A media item."""

    key: str
    spans: tuple[Span, ...]

    @property
    def rows(self) -> int:
        return sum(len(span) for span in self.spans)


@dataclass(slots=True, eq=False)
class Request:
    """A prompt of made-up ids that answers with made-up ids."""

    arrival: int
    ids: list[int]
    prompt_length: int
    answer: int
    key: PrefixKey
    needs: tuple[Need, ...] = ()
    blocks: tuple[tuple[int, int], ...] = ()
    holding: Holding | None = None
    computed: int = 0

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def capacity(self) -> int:
        return self.prompt_length + self.answer

    @property
    def finished(self) -> bool:
        return self.length == self.capacity

    def __repr__(self) -> str:
        return f"R{self.arrival}({self.computed}/{self.length}, up to {self.capacity})"


def request(
    arrival: int,
    prompt: int | Sequence[int],
    answer: int = 1,
    *,
    images: Sequence[tuple[str, int, int]] = (),
    blocks: Sequence[tuple[int, int]] = (),
    page_size: int = 4,
) -> Request:
    """A request; ``prompt`` is its ids or how many there are, ``images`` are (key, start, end)."""
    ids = [1000 * arrival + i for i in range(prompt)] if isinstance(prompt, int) else list(prompt)
    needs = tuple(Need(key, (Span(i, start, end),)) for i, (key, start, end) in enumerate(images))
    key = PrefixKey(ids, [MediaKey(need.key, need.spans) for need in needs], page_size)
    return Request(arrival, ids, len(ids), answer, key, needs, tuple(blocks))


@dataclass(slots=True)
class Encoder:
    """Costs an item's rows until it has been encoded."""

    cached: set[str] = field(default_factory=set)

    def cost(self, need: MediaNeed) -> int:
        return 0 if need.key in self.cached else need.rows


class CountedMemory:
    """Counts pages and shares none; how many tokens a key hits is told to it in ``hits``."""

    def __init__(
        self, pages: int, page_size: int = 4, window: int | None = None, side_pages: int = 0
    ) -> None:
        self.page_size = page_size
        self.pages = pages
        self.layout = KVLayout.of([None] if window is None else [None, window], 1 << 20)
        self.window, self.side_pages = window, side_pages
        self.hits: dict[int, int] = {}
        self.free = pages
        self.side_free = side_pages
        self.published: list[int] = []
        self.starts = 0

    @property
    def n_free(self) -> int:
        return self.free

    def usage(self) -> MemoryUsage:
        side = SpaceUsage("window", self.side_free, 0, self.side_pages - self.side_free, 0)
        return MemoryUsage(
            SpaceUsage("virtual", self.free, 0, self.pages - self.free, 0),
            (side,) if self.window is not None else (),
            0,
            0,
            0,
        )

    def pages_needed(self, capacity: int, chunk: int) -> tuple[int, ...]:
        whole = -(-capacity // self.page_size)
        if self.window is None:
            return (whole,)
        seen = self.window - 1 + chunk
        return whole, min(whole, (seen + self.page_size - 2) // self.page_size + 1)

    def start(self, key: PrefixKey, limit: int, expected: int = 0) -> Holding:
        self.starts += 1
        size = self.page_size
        pages = min(min(self.hits.get(id(key), 0), limit) // size, self.free)
        first = 0 if self.window is None else max(pages * size - self.window + 1, 0) // size
        if self.window is not None and pages - first > self.side_free:
            pages = first = 0
        holding = Holding(cached=pages * size, bound=[range(first, pages)])
        assert self.reserve(holding, holding.cached)
        if self.window is not None:
            self.side_free -= pages - first
        return holding

    def reserve(self, holding: Holding, n_tokens: int, expected: int = 0) -> bool:
        need = -(-n_tokens // self.page_size) - len(holding.pages)
        if need > self.free:
            return False
        if need > 0:
            self.free -= need
            holding.pages += [VirtualPage(1)] * need
        return True

    def prepare(self, holding: Holding, start: int, end: int) -> bool:
        if self.window is None:
            return True
        bound = holding.bound[0]
        need = -(-end // self.page_size) - bound.stop
        if need > self.side_free:
            return False
        if need > 0:
            self.side_free -= need
            holding.bound[0] = range(bound.start, bound.stop + need)
        return True

    def advance(self, holding: Holding, computed: int) -> None:
        assert self.window is not None
        bound = holding.bound[0]
        first = min(max(computed - self.window + 1, 0) // self.page_size, bound.stop)
        self.side_free += max(first - bound.start, 0)
        holding.bound[0] = range(max(first, bound.start), bound.stop)

    def publish(self, holding: Holding, key: PrefixKey, computed: int) -> None:
        self.published.append(computed)

    def reset(self) -> None:
        self.free, self.side_free = self.pages, self.side_pages

    def release(self, holding: Holding) -> None:
        if holding.released:
            return
        holding.released = True
        self.free += len(holding.pages)
        if self.window is not None:
            self.side_free += len(holding.bound[0])
        holding.pages = []
