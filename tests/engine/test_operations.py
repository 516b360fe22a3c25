"""Nothing is lost: after thousands of random operations every count is back."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight import LLM
from firstlight.core.output import FinishReason
from firstlight.engine.sequence import Sequence as Request
from tests.cases.steps import assert_idle, assert_sound
from tests.engine.conftest import Catalogues
from tests.engine.engines import tiny_llm
from tests.engine.mix import SMALL, Catalogue

FAMILIES = ["qwen3_vl", "windowed-gemma3"]
LIVE = 24
"""Requests in the engine at most: three times what runs."""


class Life:
    """An engine, those who use it, and what befalls them, all from one seed."""

    def __init__(self, llm: LLM, catalogue: Catalogue, seed: int) -> None:
        self.llm = llm
        self.catalogue = catalogue
        self.rng = random.Random(seed)
        self.live: list[tuple[Request, int]] = []
        self.done: list[Request] = []
        self.trouble = False
        self.counts = dict.fromkeys(("finished", "failed", "aborted"), 0)

    # -- operations ----------------------------------------------------------------------------

    def add(self) -> None:
        """Somebody comes with a question of the catalogue."""
        index = self.rng.randrange(len(self.catalogue.questions))
        tokens = self.rng.randint(1, len(self.catalogue.answers[index].greedy_ids))
        request = self.catalogue.request(self.llm, index, tokens)
        self.llm.parts.engine.add(request)
        self.live.append((request, index))

    def abort(self) -> None:
        """Somebody leaves: waiting, half prefilled, decoding; now and then one who is gone."""
        gone = self.done and self.rng.random() < 0.1
        request = self.rng.choice(self.done if gone else [r for r, _ in self.live])
        before = request.finish
        self.llm.parts.engine.abort(request)
        if before is None:
            self.counts["aborted"] += 1
            self.live = [(r, i) for r, i in self.live if r is not request]
            self.done.append(request)
        else:
            assert request.finish is before

    def step(self) -> None:
        """One step, in which the encoder or one row of the logits may fail."""
        self.trouble = True
        self.llm.parts.engine.step()
        self.trouble = False
        self._settle()

    def run(self, operations: int, check_every: int) -> None:
        """So many operations, the memory looked at between them, then to the end."""
        for n in range(operations):
            draw = self.rng.random()
            if draw < 0.22 and len(self.live) < LIVE:
                self.add()
            elif draw < 0.27 and self.live:
                self.abort()
            else:
                self.step()
            if n % check_every == 0:
                assert_sound(self.llm, [request for request, _ in self.live])
        for _ in range(10_000):
            if not self.live:
                break
            self.step()
        assert not self.live, "some request never ends"

    # -- what befalls them ---------------------------------------------------------------------

    def patch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the encoder raise or lose a row, and the head give what is not a number."""
        adapter = self.llm.parts.model.adapter
        encode, logits = adapter.encode, adapter.logits

        def failing(artifacts: Sequence[Any]) -> list[Tensor]:
            if self.befalls(0.1):
                raise ValueError("these pictures cannot be encoded")
            rows: list[Tensor] = encode(artifacts)
            if self.befalls(0.1):
                rows[-1] = rows[-1][1:]
            return rows

        def broken(hidden: Tensor) -> Tensor:
            scores = logits(hidden)
            if self.befalls(0.025):
                scores = scores.clone()
                scores[self.rng.randrange(len(scores))] = torch.nan
            return scores

        monkeypatch.setattr(adapter, "encode", failing)
        monkeypatch.setattr(adapter, "logits", broken)

    def befalls(self, probability: float) -> bool:
        """Whether a trouble of this probability happens now."""
        return self.trouble and self.rng.random() < probability

    def _settle(self) -> None:
        """Compare the answers of those that have ended since."""
        for request, index in self.live:
            if request.finish is None:
                continue
            self.done.append(request)
            failed = request.finish is FinishReason.ERROR
            self.counts["failed" if failed else "finished"] += 1
            expected = self.catalogue.answers[index]
            n = min(expected.decided(), len(request.output_ids))
            assert tuple(request.output_ids[:n]) == expected.greedy_ids[:n]
        self.live = [(r, i) for r, i in self.live if r.finish is None]
        del self.done[:-50]


def live(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, operations: int, check_every: int
) -> Life:
    """A life on small pages in a pool that is too small for those who run, to its end."""
    llm = tiny_llm(
        catalogue.path,
        eager=True,
        max_num_seqs=8,
        max_batch_tokens=48,
        page_size=4,
        max_context=344,
        kv_pages=100,
        encoder_cache_bytes=30_000,  # two or three of the catalogue's pictures
        debug=True,
    )
    life = Life(llm, catalogue, seed=operations)
    with monkeypatch.context() as patch:
        life.patch(patch)
        life.run(operations, check_every)
    assert_idle(llm)
    return life


@pytest.mark.parametrize("name", FAMILIES)
def test_after_600_random_operations_every_count_is_back(
    name: str, catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(catalogues(name, SMALL), monkeypatch, 600, check_every=10)
    assert min(life.counts.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_after_10000_random_operations_every_count_is_back(
    name: str, catalogues: Catalogues, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = live(catalogues(name, SMALL), monkeypatch, 10_000, check_every=50)
    assert min(life.counts.values()) > 100
