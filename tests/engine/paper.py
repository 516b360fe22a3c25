"""An engine on paper: scheduler, memory and metadata as they are, keys and values as numbers.

What a real model writes for a position depends on everything before it. Here that is one number,
a digest of all tokens and pictures up to the position (to the end of its block, in a prefix-LM
model). Each step writes the digests of its rows where the metadata say, then reads all positions
that its rows see and compares. A page that was given away too early, bound twice, found under a
wrong key or never written shows at the step that reads it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from firstlight.attention import RowsInMemory
from firstlight.attention.metadata import Side, attention_values, slot_suffix
from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.span import Span
from firstlight.engine.scheduling import Limits, MediaNeed, Scheduler
from firstlight.memory.holding import Holding
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import KVLayout
from firstlight.memory.prefix_key import MediaKey, PrefixKey

PLACEHOLDER = 99
WORDS = 50
NOTHING = 0


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as the scheduler knows it."""

    key: str
    spans: tuple[Span, ...]

    @property
    def rows(self) -> int:
        """Positions that it fills."""
        return sum(len(span) for span in self.spans)


@dataclass(frozen=True, slots=True)
class Sheet:
    """What is asked: token ids, and the pictures among them."""

    ids: tuple[int, ...]
    pictures: tuple[Picture, ...] = ()


@dataclass(slots=True, eq=False)
class Paper:
    """A request; see :class:`~firstlight.engine.scheduling.request.Schedulable`."""

    sheet: Sheet
    capacity: int
    arrival: int
    blocks: tuple[tuple[int, int], ...]
    key: PrefixKey
    ids: list[int]
    digests: list[int]
    holding: Holding | None = None
    computed: int = 0

    @property
    def needs(self) -> Sequence[Picture]:
        """Its pictures."""
        return self.sheet.pictures

    @property
    def length(self) -> int:
        """Tokens so far."""
        return len(self.ids)

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.sheet.ids)

    def extend(self) -> None:
        """One more token, which follows from all before it."""
        self.ids.append(self.digests[-1] % WORDS)
        self.digests.append(_digest(self.digests[-1], self.ids[-1], ()))


def _digest(*parts: object) -> int:
    return hash(parts) & 0x7FFF_FFFF_FFFF_FFFF | 1


def _digests(sheet: Sheet, blocks: Sequence[tuple[int, int]]) -> list[int]:
    """One number per position; rows of a block know the whole block."""
    elements: list[object] = list(sheet.ids)
    for picture in sheet.pictures:
        for span in picture.spans:
            for i in range(len(span)):
                elements[span.start + i] = (picture.key, span.row + i)
    found: list[int] = []
    ends = dict(blocks)
    for position, element in enumerate(elements):
        before = found[-1] if found else NOTHING
        whole = tuple(elements[position : ends[position]]) if position in ends else ()
        found.append(_digest(before, element, whole))
    return found


def paper(sheet: Sheet, answer: int, arrival: int, *, page_size: int, prefix_lm: bool) -> Paper:
    """A new request for a sheet; with ``prefix_lm`` each span of its pictures is a block."""
    spans = sorted((s.start, s.end) for picture in sheet.pictures for s in picture.spans)
    ids = list(sheet.ids)
    blocks = tuple(spans) if prefix_lm else ()
    return Paper(
        sheet=sheet,
        capacity=len(ids) + answer,
        arrival=arrival,
        blocks=blocks,
        key=PrefixKey(ids, [MediaKey(p.key, p.spans) for p in sheet.pictures], page_size),
        ids=ids,
        digests=_digests(sheet, blocks),
    )


@dataclass(slots=True)
class Costs:
    """An encoder that has cached every other picture."""

    def cost(self, need: MediaNeed, /) -> int:
        """Rows to encode."""
        return need.rows if sum(need.key.encode()) % 2 else 0


@dataclass(slots=True)
class PaperEngine:
    """Steps over one memory, each looked at.

    Attributes:
        steps, rows: that were made. widest: requests of the largest step.
    """

    memory: KVMemory
    scheduler: Scheduler[Paper]
    max_pages: int
    prefix_lm: bool
    contents: list[np.ndarray] = field(default_factory=list)
    steps: int = 0
    rows: int = 0
    widest: int = 0

    @property
    def sides(self) -> list[Side]:
        """The memory's sides with their maps."""
        return list(zip(self.memory.layout.sides, self.memory.maps, strict=True))

    def step(self, lose: float, rng: random.Random) -> tuple[list[Paper], list[Paper]]:
        """One step.

        Args:
            lose: how likely each request is to fail, before or after the rows are computed.

        Returns:
            the requests that ended, and those that failed.
        """
        plan = self.scheduler.next_batch()
        if plan is None:
            return [], []
        failed = [c.request for c in plan.chunks if rng.random() < lose]
        early = failed[: len(failed) // 2]
        for request in early:
            self.scheduler.remove(request, keep=False)
        chunks = tuple(c for c in plan.chunks if c.request not in early)
        if not chunks:
            return [], failed
        self._compute(chunks)
        self.scheduler.commit(BatchPlan(plan.phase, chunks))
        self.scheduler.publish(BatchPlan(plan.phase, chunks))
        for request in failed[len(early) :]:
            self.scheduler.remove(request, keep=False)
        return self._grow([c for c in chunks if c.request not in failed]), failed

    def _grow(self, chunks: Sequence[Chunk[Paper]]) -> list[Paper]:
        ended = []
        for chunk in chunks:
            request = chunk.request
            if chunk.end < request.length:
                continue
            if request.length == request.capacity:
                raise AssertionError("a request outgrew its capacity")
            request.extend()
            if request.length == request.capacity:
                self.scheduler.remove(request)
                ended.append(request)
        return ended

    def _compute(self, chunks: Sequence[Chunk[Paper]]) -> None:
        """Write all rows, then read what they see, on every side."""
        self.steps += 1
        self.rows += sum(len(chunk) for chunk in chunks)
        self.widest = max(self.widest, len(chunks))
        rows = []
        for chunk in chunks:
            holding = chunk.request.holding
            assert holding is not None
            rows.append(RowsInMemory(holding.pages, chunk.start, chunk.end, chunk.request.blocks))
        values = attention_values(
            rows,
            sides=self.sides,
            page_size=self.memory.page_size,
            max_pages=self.max_pages,
            prefix_lm=self.prefix_lm,
        )
        new = np.concatenate([c.request.digests[c.start : c.end] for c in chunks])
        for (spec, _), contents in zip(self.sides, self.contents, strict=True):
            suffix = slot_suffix(spec)
            where = values["write_locations" + suffix].numpy()
            assert len(set(where.tolist())) == len(where), "two rows are written to one place"
            assert (where >= self.memory.page_size).all(), "a row is written to the sink"
            contents[where] = new
            table = values["page_table" + suffix].numpy()
            runs = values["attention_rows" + suffix].numpy()[:, 3]
            for i, chunk in enumerate(chunks):
                self._read(chunk, contents, table[i], int(runs[i]), spec.first_seen(chunk.start))

    def _read(
        self, chunk: Chunk[Paper], contents: np.ndarray, pages: np.ndarray, run: int, first: int
    ) -> None:
        """Compare what the chunk's rows see with what must be there."""
        size = self.memory.page_size
        at = np.arange(first, chunk.end)
        found = contents[pages[at // size].astype(np.int64) * size + at % size]
        expected = np.array(chunk.request.digests[first : chunk.end])
        wrong = np.flatnonzero(found != expected)
        assert not len(wrong), (
            f"request {chunk.request.arrival}, rows [{chunk.start}, {chunk.end}): position "
            f"{first + wrong[0]} of its context holds something else"
        )
        if run >= 0:
            assert (contents[run : run + len(at)] == expected).all(), "the run is none"


def paper_engine(
    *,
    windows: Sequence[int | None],
    page_size: int,
    pages: int,
    window_pages: int,
    max_context: int,
    limits: Limits,
    cache: bool,
    prefix_lm: bool,
) -> PaperEngine:
    """An engine over an empty memory; ``windows`` as layers have them."""
    layout = KVLayout.of(windows, max_context)
    side_pages = [pages if side.window is None else window_pages for side in layout.sides]
    contents = [np.zeros(n * page_size, dtype=np.int64) for n in side_pages]

    def copy(places: Sequence[tuple[int, int]], rows: int) -> None:
        for side, (source, target) in zip(contents, places, strict=True):
            pages = side.reshape(-1, page_size)
            pages[target, :rows] = pages[source, :rows]

    memory = KVMemory(layout, pages, side_pages, page_size, cache, copy)
    return PaperEngine(
        memory,
        Scheduler(memory, limits, Costs()),
        -(-max_context // page_size),
        prefix_lm,
        contents,
    )


def sheets(rng: random.Random, *, longest: int, most_rows: int) -> list[Sheet]:
    """Texts with shared beginnings; pictures at all places, in one piece or in several; twins."""
    heads = [tuple(rng.randrange(WORDS) for _ in range(n)) for n in (3, 16, 17, 40)]
    made: list[Sheet] = []
    for i in range(14):
        n = rng.choice((1, 2, longest, rng.randint(1, longest), rng.randint(1, longest)))
        ids = [*rng.choice((*heads, ())), *(rng.randrange(WORDS) for _ in range(n))][:n]
        pictures: list[Picture] = []
        at = rng.randint(0, 6)
        for number in range(rng.randint(0, 3) if i % 4 else 0):
            rows = rng.randint(1, most_rows)
            parts = [rows] if rng.random() < 0.6 else [rows, rng.randint(1, most_rows)]
            spans, row = [], 0
            for part in parts:
                if at + part > n:
                    break
                spans.append(Span(number, at, at + part, row))
                row += part
                at += part + rng.randint(1, 3)
            if spans:
                pictures.append(Picture(f"picture {rng.randint(0, 3)}/{row}", tuple(spans)))
            at += rng.choice((0, 1, rng.randint(0, 20)))
        for span in (s for p in pictures for s in p.spans):
            ids[span.start : span.end] = [PLACEHOLDER] * len(span)
        made.append(Sheet(tuple(ids), tuple(pictures)))
    return made + [_twin(sheet) for sheet in made if sheet.pictures]


def _twin(sheet: Sheet) -> Sheet:
    """The same ids with another first picture."""
    first, *others = sheet.pictures
    return Sheet(sheet.ids, (Picture("another " + first.key, first.spans), *others))
