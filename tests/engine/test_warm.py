"""The encoder's first picture is nobody's: it is over when the engine is ready."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from firstlight import LLM
from firstlight.engine.warm import SIDE, warm_encoder
from firstlight.models.adapter import Adapter
from firstlight.models.loading import LoadedModel, load_model
from tests.conftest import TinyCheckpoint
from tests.engine.engines import GREEDY, tiny_llm, user


def ticks() -> Callable[[], float]:
    """A clock that counts its readings."""
    count = itertools.count()
    return lambda: float(next(count))


@pytest.fixture(scope="module")
def model(tiny_checkpoint: TinyCheckpoint) -> LoadedModel:
    return load_model(tiny_checkpoint("qwen3_vl"), dtype="float32")


class Seen:
    """Records what an adapter encodes, and under which grad mode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.artifacts: list[Any] = []
        self.rows: list[Tensor] = []
        self.grad: list[bool] = []
        plain = Adapter.media_rows

        def media_rows(adapter: Adapter, artifacts: Sequence[Any]) -> list[Tensor]:
            rows = plain(adapter, artifacts)
            self.artifacts += artifacts
            self.rows += rows
            self.grad.append(torch.is_grad_enabled())
            return rows

        monkeypatch.setattr(Adapter, "media_rows", media_rows)


def test_one_picture_goes_through_processor_and_tower(
    model: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    assert warm_encoder(model, ticks()) == 1.0
    ((artifact,), (rows,)) = seen.artifacts, seen.rows
    assert artifact.size == (SIDE, SIDE)
    assert len(rows) == model.adapter.rows(artifact) > 0
    assert seen.grad == [False]


def test_an_engine_is_warm_when_it_is_ready_and_its_caches_are_empty(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Seen(monkeypatch)
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True) as llm:
        assert len(seen.artifacts) == 1
        use = llm.inspect()["use"]
        assert use["encoder"]["calls"] == use["encoder"]["cache"]["entries"] == 0
        assert use["artifacts"]["entries"] == use["artifacts"]["misses"] == 0
        assert use["pages"]["lookups"] == 0


def test_its_seconds_are_among_those_of_the_start(tiny_checkpoint: TinyCheckpoint) -> None:
    with tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True) as llm:
        parts = {row["part"]: row for row in llm.inspect()["seconds"]}
        assert parts["encoder warm-up"]["seconds"] == round(llm.parts.warm_seconds or 0, 4) > 0
        assert parts["all"]["seconds"] >= parts["encoder warm-up"]["seconds"]


def test_a_model_for_text_is_not_warmed(tiny_checkpoint: TinyCheckpoint) -> None:
    with tiny_llm(tiny_checkpoint("llama"), eager=True) as llm:
        assert llm.parts.warm_seconds is None
        assert "encoder warm-up" not in [row["part"] for row in llm.inspect()["seconds"]]


def test_a_tower_that_fails_on_it_is_logged_and_serves_text(
    tiny_checkpoint: TinyCheckpoint,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def failing(adapter: Adapter, artifacts: Sequence[Any]) -> list[Tensor]:
        raise MemoryError("no room for so many patches")

    monkeypatch.setattr(Adapter, "media_rows", failing)
    with caplog.at_level(logging.WARNING, "firstlight.engine"):
        llm: LLM = tiny_llm(tiny_checkpoint("qwen3_vl"), eager=True)
    (record,) = caplog.records
    assert "MemoryError: no room for so many patches" in record.getMessage()
    with llm:
        assert llm.chat(user("Hello."), GREEDY).token_ids
