"""An engine whose tower runs from graphs answers as one whose tower runs eager."""

from __future__ import annotations

import pytest

from firstlight import LLM
from firstlight.server.graphs import graphs_report
from tests.conftest import TinyCheckpoint
from tests.engine.engines import GREEDY, Part, tiny_llm, user
from tests.pictures import picture

PARTS: list[Part] = ["What is it?", picture(48, 32, seed=1), "and", picture(64, 64, seed=2)]


@pytest.mark.parametrize("family", ["qwen3_vl", "llava"])
def test_answers_are_the_same_and_the_report_says_how(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    path = tiny_checkpoint(family)
    with tiny_llm(path, prefill_buckets=(64,)) as plain:
        wanted = plain.chat(user(*PARTS), GREEDY)
        assert plain.inspect()["encoder_graphs"] == {"graphs": False, "why": "encoder_graphs = off"}
    with captured(tiny_checkpoint, family) as llm:
        assert llm.chat(user(*PARTS), GREEDY).token_ids == wanted.token_ids
        told = llm.inspect()["encoder_graphs"]
        assert told["calls"] == {"captured": 1}
        assert graphs_report(llm.parts)["encoder_graphs"] == told
        entries = {entry.piece: entry.n_bytes for entry in llm.parts.ledger.bytes}
        assert entries["encoder 32"] > 0
        assert entries["encoder.pixels"] == told["slots"][0]["bytes"]
        parts = {entry.part: entry.seconds for entry in llm.parts.ledger.seconds}
        assert parts["encoder graphs and their proofs"] > 0


def captured(tiny_checkpoint: TinyCheckpoint, family: str) -> LLM:
    return tiny_llm(
        tiny_checkpoint(family), prefill_buckets=(64,), encoder_graphs="on", encoder_budgets=(2, 32)
    )


def test_without_compiled_kernels_the_tower_is_captured_as_well(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    path = tiny_checkpoint("qwen2_5_vl")
    settings = {"prefill_buckets": (64,), "native": "off"}
    with tiny_llm(path, **settings) as plain:
        wanted = plain.chat(user(*PARTS), GREEDY)
    with tiny_llm(path, encoder_graphs="on", encoder_budgets=(32,), **settings) as llm:
        assert llm.chat(user(*PARTS), GREEDY).token_ids == wanted.token_ids
        assert llm.inspect()["encoder_graphs"]["calls"] == {"captured": 1}
