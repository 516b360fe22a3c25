"""Scheduler, memory and metadata together: every row reads what its own request wrote."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from firstlight.engine.scheduling import Limits
from firstlight.errors import FirstlightError
from firstlight.memory import integrity
from tests.engine.broken import blind_key, cut_block, hasty_window, unbound_hit, uncounted_hit
from tests.engine.paper import Paper, PaperEngine, Sheet, paper, paper_engine, sheets

LONGEST = 90
ANSWER = 40
MOST_ROWS = 14


@dataclass(frozen=True, slots=True)
class Setting:
    """One memory.

    Attributes:
        windows: of the layers.
        page: tokens of a page. chunk: rows of a step.
    """

    windows: tuple[int | None, ...]
    page: int
    chunk: int
    cache: bool = True
    prefix_lm: bool = False

    def engine(self) -> PaperEngine:
        """Pools that hold the longest request and little more."""
        context = LONGEST + ANSWER
        whole = -(-context // self.page)
        # A chunk and the longest window before it, cut by pages at both ends.
        window = max((w for w in self.windows if w is not None), default=0)
        seen = -(-(window + min(self.chunk, context)) // self.page) + 2
        return paper_engine(
            windows=self.windows,
            page_size=self.page,
            pages=1 + whole + whole // 2,
            window_pages=1 + min(whole, seen) + 2,
            max_context=context,
            limits=Limits(max_num_seqs=6, max_batch_tokens=self.chunk, max_encoder_rows=20),
            cache=self.cache,
            prefix_lm=self.prefix_lm,
        )


class Desk:
    """Random operations on an engine on paper."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self.setting = setting
        self.rng = random.Random(seed)
        self.engine = setting.engine()
        self.at_first = self.engine.memory.usage()
        self.sheets = sheets(self.rng, longest=LONGEST, most_rows=MOST_ROWS)
        self.live: list[Paper] = []
        self.arrivals = 0

    def add(self, sheet: Sheet, answer: int) -> Paper:
        """A request at the end of the queue."""
        request = paper(
            sheet,
            answer,
            self.arrivals,
            page_size=self.setting.page,
            prefix_lm=self.setting.prefix_lm,
        )
        self.arrivals += 1
        self.engine.scheduler.add(request)
        self.live.append(request)
        return request

    def step(self, lose: float = 0.0) -> None:
        """One step; each of its requests may fail."""
        gone = {id(r) for group in self.engine.step(lose, self.rng) for r in group}
        self.live = [r for r in self.live if id(r) not in gone]

    def operate(self, operations: int) -> None:
        """Come, leave, fail and go on; then all to their end."""
        for n in range(operations):
            draw = self.rng.random()
            if n % 100 == 0:
                held = [r.holding for r in self.live if r.holding is not None]
                integrity.check(self.engine.memory, held)
            if draw < 0.2 and len(self.live) < 16:
                self.add(self.rng.choice(self.sheets), self.rng.randint(1, ANSWER))
            elif draw < 0.23 and self.live:
                request = self.live.pop(self.rng.randrange(len(self.live)))
                self.engine.scheduler.remove(request)
            elif draw < 0.232:
                self.engine.memory.flush()
            else:
                self.step(lose=0.005)
        for _ in range(20_000):
            if not self.live:
                return
            self.step()
        raise AssertionError(f"{len(self.live)} requests never end")

    def assert_all_back(self) -> None:
        """Nothing is held, and without the cache nothing is left."""
        stats, memory = self.engine.scheduler.stats, self.engine.memory
        assert (stats.waiting, stats.running) == (0, 0)
        usage = memory.usage()
        assert [space.held for space in (usage.pages, *usage.sides)] == [0] * (1 + len(usage.sides))
        integrity.check(memory)
        memory.flush()
        usage = memory.usage()
        assert usage.pages.free == self.at_first.pages.free
        assert [s.free for s in usage.sides] == [s.free for s in self.at_first.sides]


FULL, BOTH, WINDOWED = (None, None), (12, None, 12), (12, 12)
TWO = (5, None, 20)
SETTINGS = {
    "full": Setting(FULL, page=4, chunk=16),
    "full-page1": Setting(FULL, page=1, chunk=17),
    "full-page32": Setting(FULL, page=32, chunk=1000),
    "full-uncached": Setting(FULL, page=4, chunk=64, cache=False),
    "both": Setting(BOTH, page=4, chunk=16),
    "both-page1": Setting(BOTH, page=1, chunk=17),
    "both-page16": Setting(BOTH, page=16, chunk=64),
    "both-uncached": Setting(BOTH, page=4, chunk=64, cache=False),
    "windowed": Setting(WINDOWED, page=4, chunk=16),
    "windowed-page1": Setting(WINDOWED, page=1, chunk=1000),
    "two-windows": Setting(TWO, page=2, chunk=16),
    "prefix-lm": Setting(FULL, page=4, chunk=16, prefix_lm=True),
    "prefix-lm-both": Setting(BOTH, page=4, chunk=17, prefix_lm=True),
    "prefix-lm-both-page1": Setting(BOTH, page=1, chunk=16, prefix_lm=True),
}


def work(setting: Setting, seed: int, operations: int) -> Desk:
    """A desk after its operations, everything back in place."""
    desk = Desk(setting, seed)
    desk.operate(operations)
    desk.assert_all_back()
    return desk


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_reads_what_its_request_wrote_through_1000_operations(name: str) -> None:
    setting = SETTINGS[name]
    desk = work(setting, seed=1, operations=1000)
    assert desk.engine.widest > 3
    assert desk.engine.scheduler.stats.preempted > 0, "the pool is too large for this test"
    hits = desk.engine.memory.usage().hits
    assert (hits > 0) is setting.cache


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_reads_what_its_request_wrote_through_10000_operations(
    name: str, seed: int
) -> None:
    work(SETTINGS[name], seed, operations=10_000)


# -- the paper shows what goes wrong ---------------------------------------------------------------


FAULTS = {
    "blind key": (blind_key, "full"),
    "hasty window": (hasty_window, "both-page1"),
    "uncounted hit": (uncounted_hit, "full"),
    "unbound hit": (unbound_hit, "both-page1"),
    "cut block": (cut_block, "prefix-lm"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_paper_shows_a_fault_of_scheduler_or_memory(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it, name = FAULTS[fault]
    break_it(monkeypatch)
    with pytest.raises((AssertionError, FirstlightError, ValueError, KeyError, IndexError)):
        work(SETTINGS[name], seed=1, operations=1000)
