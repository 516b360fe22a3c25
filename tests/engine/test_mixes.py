"""Any mix of requests gives each one what it gets alone in transformers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest

from firstlight import LLM
from firstlight.errors import FirstlightError
from tests.cases.steps import assert_idle
from tests.engine.broken import blind_key, hasty_window, unbound_hit, uncounted_hit
from tests.engine.conftest import WINDOW, Catalogues
from tests.engine.engines import tiny_llm
from tests.engine.mix import FULL, SMALL, Catalogue, Scale, assert_answers, play, random_mix

QWEN, WINDOWED, GEMMA = "qwen3_vl", "windowed-gemma3", "gemma3_vl"
WINDOWS = {QWEN: None, WINDOWED: WINDOW, GEMMA: 8}
"""M-RoPE and DeepStack; sliding and full layers; both and pictures whose rows see each other."""
PAGES = (1, 16, 128)
CHUNKS = (16, 17, 64, 1000)
SEQS = 8


@dataclass(frozen=True, slots=True)
class Cell:
    """One place of the grid.

    Attributes:
        page: tokens of a page. chunk: of a prefill step.
        cache: whether prefixes are kept.
        tight: whether the pool is so small that running requests must give their pages up.
    """

    page: int
    chunk: int
    cache: bool
    tight: bool

    def __str__(self) -> str:
        cache, pool = "cached" if self.cache else "uncached", "tight" if self.tight else "roomy"
        return f"page{self.page}-chunk{self.chunk}-{cache}-{pool}"


GRID = [Cell(*place) for place in itertools.product(PAGES, CHUNKS, (True, False), (True, False))]
FEW = {
    QWEN: [
        Cell(1, 16, True, True),
        Cell(16, 17, True, True),
        Cell(16, 64, False, True),
        Cell(128, 1000, True, False),
        Cell(1, 1000, False, False),
        Cell(128, 16, False, False),
    ],
    WINDOWED: [
        Cell(1, 17, True, True),
        Cell(16, 16, True, True),
        Cell(16, 1000, False, True),
        Cell(128, 64, True, False),
    ],
    GEMMA: [
        Cell(1, 16, True, True),
        Cell(16, 17, True, True),
        Cell(16, 1000, False, False),
        Cell(128, 64, True, False),
    ],
}
"""Every value of every axis, and each pair of cache and pool, in cells that together take
seconds."""


def pools(cell: Cell, window: int | None, context: int) -> dict[str, Any]:
    """Tight: room for the longest request and little more, on every side and for pictures.

    Roomy: every page of every request may stay cached, on the windowed side too.
    """
    if not cell.tight:
        return {} if window is None else {"sliding_pages": 1 + SEQS * -(-context // cell.page)}
    settings = {
        "kv_pages": 1 + -(-context // cell.page) + 1,
        "encoder_cache_bytes": 20_000,
        "max_encoder_tokens": 24,
    }
    if window is not None:
        seen = window + min(cell.chunk, context)
        settings["sliding_pages"] = 2 + -(-seen // cell.page) + 3 * -(-window // cell.page)
    return settings


def engine_of(name: str, catalogue: Catalogue, cell: Cell, scale: Scale) -> LLM:
    """A captured engine for the cell's settings; its buckets are below and above its batches."""
    context = scale.longest + scale.answer + 32
    buckets = (cell.chunk,) if cell.chunk < 100 else (64, 256)
    return tiny_llm(
        catalogue.path,
        page_size=cell.page,
        max_batch_tokens=cell.chunk,
        max_context=context,
        max_num_seqs=SEQS,
        prefix_cache=cell.cache,
        prefill_buckets=buckets,
        decode_buckets=(1, 4, 8),
        proof="off",  # other tests prove; here all 40 answers are compared
        debug=True,
        **pools(cell, WINDOWS[name], context),
    )


def check(name: str, catalogue: Catalogue, cell: Cell, scale: Scale, seed: int) -> None:
    """Play a mix in the cell and look at every answer, and at what the cell is there for."""
    llm = engine_of(name, catalogue, cell, scale)
    mix = random_mix(catalogue, seed, growing=0.75 if cell.tight else 0.0)
    played = play(llm, catalogue, mix)
    assert_answers(catalogue, mix, played)
    assert_idle(llm)
    if cell.tight:
        assert llm.parts.scheduler.stats.preempted > 0, "the pool is too large for this test"
    hits = llm.parts.kv.usage().hits
    if not cell.cache:
        assert hits == 0
    elif not (cell.tight and WINDOWS[name]):  # where those who run may need every windowed page
        assert hits > 0


@pytest.mark.parametrize(
    ("name", "cell"), [(name, cell) for name in FEW for cell in FEW[name]], ids=str
)
def test_a_mix_of_40_requests_answers_like_each_alone_in_transformers(
    name: str, cell: Cell, catalogues: Catalogues
) -> None:
    check(name, catalogues(name, SMALL), cell, SMALL, seed=GRID.index(cell))


FAULTS = {
    "blind key": (blind_key, QWEN, Cell(16, 64, True, False)),
    "uncounted hit": (uncounted_hit, QWEN, Cell(16, 17, True, True)),
    "hasty window": (hasty_window, WINDOWED, Cell(16, 1000, False, True)),
    "unbound hit": (unbound_hit, WINDOWED, Cell(16, 64, True, True)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mix_shows_a_fault_of_the_memory(
    fault: str, catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it, name, cell = FAULTS[fault]
    catalogue = catalogues(name, SMALL)
    break_it(monkeypatch)
    with pytest.raises((AssertionError, FirstlightError, ValueError, KeyError, IndexError)):
        check(name, catalogue, cell, SMALL, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("cell", GRID, ids=str)
@pytest.mark.parametrize("name", WINDOWS)
def test_a_mix_of_long_and_short_requests_answers_like_each_alone_in_transformers(
    name: str, cell: Cell, catalogues: Catalogues
) -> None:
    check(name, catalogues(name, FULL), cell, FULL, seed=100 + GRID.index(cell))
