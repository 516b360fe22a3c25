"""An engine proves its graphs before they serve, and goes on eager where one is wrong."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import Any

import pytest
import torch
from tools.tiny_checkpoints import PREFIX_LM_FAMILIES, TEXT_FAMILIES, VISION_FAMILIES
from torch import Tensor

from firstlight import LLM, SamplingParams
from firstlight.core.plan import Chunk
from firstlight.core.reason import Mode, Phase, Reason
from firstlight.engine import merge_check
from firstlight.engine.merge import merge
from firstlight.errors import CaptureError, ConfigError
from firstlight.graphs import BodyInputs, TapeGraph
from firstlight.models.adapter import Adapter
from firstlight.models.adapters.qwen_vl import Qwen3VLAdapter
from firstlight.models.body import Body, DeepStackBody
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm

FEW = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
SMALL: dict[str, Any] = {"prefill_buckets": (8, 32), "max_num_seqs": 2}


@pytest.mark.parametrize("family", [*TEXT_FAMILIES, *VISION_FAMILIES, *PREFIX_LM_FAMILIES])
def test_nothing_is_found_in_a_healthy_model(family: str, tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint(family), **SMALL)
    quick = [report.proof for report in llm.parts.captures.values()]
    assert [proof is not None and not proof.failed and not proof.unread for proof in quick] == [
        True,
        True,
    ]
    report = llm.verify()
    assert (report["passed"], report["findings"], report["failed"]) == (True, [], 0)
    assert [row["worst"] for row in report["rows"]] == [0.0] * 5
    assert min(row["cases"] for row in report["rows"]) >= 5


def test_pages_and_pool_are_afterwards_as_if_nothing_had_run(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    llm = tiny_llm(tiny_checkpoint("qwen3_vl"), **SMALL)
    llm.verify()
    assert llm.parts.kv.n_free == llm.parts.memory.n_pages - 1
    pool = llm.parts.pool
    assert all(not t[1:].any() for t in (*pool.keys, *pool.values))
    for runner in llm.parts.runners.values():
        assert not runner.registry.buffer("input_embeds").any()


def test_a_removed_deepstack_write_fails_and_names_the_segment(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(adapter: Qwen3VLAdapter) -> Body:
        tokens, *stacks = adapter.contract.segments
        return DeepStackBody(adapter.decoder, tokens, stacks[:-1])

    monkeypatch.setattr(Qwen3VLAdapter, "body", body)
    report = tiny_llm(tiny_checkpoint("qwen3_vl"), **SMALL).verify()
    assert not report["passed"]
    assert "segment deepstack.1 is declared, but no output depends on it" in str(report["findings"])


def test_a_merge_that_loses_a_segment_fails_and_names_it(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lossy(into: Tensor, chunks: Seq[Chunk[Any]], adapter: Adapter, contract: Any) -> None:
        merge(into, chunks, adapter, contract)
        last = contract.segments[-1]
        into[: sum(map(len, chunks)), last.start : last.end] = 0

    llm = tiny_llm(tiny_checkpoint("qwen3_vl"), **SMALL, proof="off")
    monkeypatch.setattr(merge_check, "merge", lossy)
    _, findings = merge_check.check_merge(llm.parts.model.adapter)
    assert {str(f.where).partition(":")[0] for f in findings} == {"segment deepstack.1"}


def test_a_wrong_graph_is_quarantined_and_its_batches_run_eager_with_the_same_answer(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = TapeGraph.replay

    def wrong(graph: TapeGraph) -> Tensor:
        return right(graph) + (graph.label == "prefill 32")

    path = tiny_checkpoint("qwen3_vl")
    expected = tiny_llm(path, eager=True).generate("How many circles are there?", FEW)
    monkeypatch.setattr(TapeGraph, "replay", wrong)
    llm = tiny_llm(path, **SMALL)
    answer = llm.generate("How many circles are there?", FEW)
    assert answer.token_ids == expected.token_ids
    prefill, decode = (step.decision for step in answer.timings.steps)
    assert (prefill.mode, prefill.reason) == (Mode.EAGER, Reason.QUARANTINED)
    assert "bucket of 32 rows is quarantined" in prefill.detail
    assert "is the first of" in prefill.detail
    assert decode.mode is Mode.GRAPH
    states = {b["size"]: b["state"] for b in llm.inspect()["buckets"]["prefill"]}
    assert states == {8: "ready", 32: "quarantined"}


def test_without_proof_graphs_serve_unproven(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint("llama"), **SMALL, proof="off")
    assert [report.proof for report in llm.parts.captures.values()] == [None, None]
    assert llm.generate("a", FEW).timings.steps[0].decision.mode is Mode.GRAPH


def test_an_eager_engine_has_nothing_to_verify(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint("llama"), eager=True)
    with pytest.raises(ConfigError, match="nothing to verify"):
        llm.verify()


# -- what was asked for and can never be ------------------------------------------------------


def test_a_bucket_that_no_batch_reaches_stops_the_start(tiny_checkpoint: TinyCheckpoint) -> None:
    with pytest.raises(ConfigError, match=r"prefill_buckets holds 128.*63 rows.*bucket of 64"):
        tiny_llm(
            tiny_checkpoint("llama"), prefill_buckets=(64, 128), max_num_seqs=1, max_context=64
        )


@pytest.mark.parametrize("backend", ["auto", "eager"])
def test_buckets_without_graphs_contradict_each_other(backend: str) -> None:
    with pytest.raises(ConfigError, match="nothing is captured"):
        LLM("x", backend=backend, eager=backend == "auto", prefill_buckets=(64,))


@pytest.fixture
def uncapturable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that asks the device for a value in every run."""
    plain = Adapter.body

    def body(adapter: Adapter) -> Body:
        inner = plain(adapter)

        def run(inputs: BodyInputs) -> Tensor:
            return inner(inputs) + torch.zeros(()) * inputs.positions.max().item()

        return run  # type: ignore[return-value]

    monkeypatch.setattr(Adapter, "body", body)


@pytest.mark.usefixtures("uncapturable")
@pytest.mark.parametrize("asked", [{"backend": "tape"}, {"prefill_buckets": (8, 32)}])
def test_graphs_that_were_asked_for_and_cannot_be_captured_stop_the_start(
    asked: dict[str, Any], tiny_checkpoint: TinyCheckpoint
) -> None:
    with pytest.raises(CaptureError, match=r"asks for prefill graphs, but none can be captured"):
        LLM(tiny_checkpoint("llama"), dtype="float32", max_num_seqs=1, **asked)


@pytest.mark.usefixtures("uncapturable")
def test_by_default_what_cannot_be_captured_runs_eager_and_says_why(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    llm = LLM(tiny_checkpoint("llama"), dtype="float32", max_num_seqs=1, max_prefill_bucket=16)
    steps = llm.generate("a", FEW).timings.steps
    assert {step.decision.reason for step in steps} == {Reason.CAPTURE_FAILED}
    assert all("test_proof.py" in step.decision.detail for step in steps)
    assert {row["reason"] for row in llm.inspect()["eager"]["prefill"]} >= {"capture_failed"}


def test_backend_eager_means_that_graphs_are_off(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = LLM(tiny_checkpoint("llama"), dtype="float32", backend="eager")
    step = llm.generate("a", FEW).timings.steps[0]
    assert (step.decision.mode, step.decision.reason) == (Mode.EAGER, Reason.GRAPHS_OFF)
    assert not llm.parts.runners[Phase.PREFILL].graphs
