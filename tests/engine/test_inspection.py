"""What the report of an engine says about cost, waste, bytes and seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from firstlight import LLM
from firstlight.core.reason import Mode, Phase, Reason
from firstlight.engine.accounting import Weights
from firstlight.graphs import BatchTimes, BucketState, CostCurve, Extent
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(
        tiny_checkpoint("qwen3_vl"), prefill_buckets=(16, 64, 256), padding_cost="measured"
    )


@pytest.fixture(scope="module")
def report(llm: LLM) -> dict[str, Any]:
    return llm.inspect()


def test_costs_are_measured_for_both_phases(report: dict[str, Any]) -> None:
    for phase, smallest in (("prefill", 16), ("decode", 1)):
        rows = report["padding_cost"][phase]
        assert smallest in [row["rows"] for row in rows if row["replay_ms"] is not None]
        assert all(row["eager_ms"] > 0 for row in rows)


def test_free_padding_measures_nothing_and_never_runs_eager_for_it(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    llm = tiny_llm(tiny_checkpoint("qwen3_vl"), padding_cost="free", prefill_buckets=(256,))
    report = llm.inspect()
    assert report["padding_cost"] == {}
    assert report["waste"][0]["time"] is None
    decision = llm.parts.runners[Phase.PREFILL].decide(Extent(1, 1), 1)
    assert decision.mode is Mode.GRAPH


def test_waste_is_expected_of_the_buckets_there_are(report: dict[str, Any]) -> None:
    (row,) = report["waste"]
    assert row["lengths"] == "log-uniform from 32 to 256"
    assert 0 < row["rows"] < 1
    assert row["time"] is not None


def test_the_bytes_of_the_kinds_add_up_to_the_total(llm: LLM, report: dict[str, Any]) -> None:
    rows = report["bytes"]
    sums = {row["kind"]: row["bytes"] for row in rows if row["phase"] is None}
    total = sums.pop("all")
    assert sum(sums.values()) == total == llm.parts.ledger.total_bytes
    assert sums["kv"] == llm.parts.pool.nbytes
    for kind in ("scratch", "slot", "host objects"):
        assert sums[kind] == sum(r["bytes"] for r in rows if r["kind"] == kind and r["phase"])


def test_the_bytes_of_a_bucket_are_those_of_its_kinds(report: dict[str, Any]) -> None:
    for buckets in report["buckets"].values():
        for bucket in buckets:
            kinds = bucket["bytes_by_kind"]
            assert sum(n for kind, n in kinds.items() if kind != "host objects") == bucket["bytes"]
            assert 0 < kinds["host objects"] < 10_000 * bucket["ops"]


def test_the_seconds_of_a_phase_are_those_of_its_capture_and_the_measurement(llm: LLM) -> None:
    for phase, capture in llm.parts.captures.items():
        entries = [e for e in llm.parts.ledger.seconds if e.phase is phase]
        captured = sum(e.seconds for e in entries if e.part != "padding cost")
        assert captured == pytest.approx(capture.seconds, rel=1e-6)
        assert {"record", "plan", "choosing forms", "proof", "padding cost", "other"} == {
            e.part for e in entries
        }


def test_measuring_costs_takes_a_small_part_of_the_start(llm: LLM) -> None:
    spent = sum(e.seconds for e in llm.parts.ledger.seconds if e.part == "padding cost")
    # The budget is 5 %; two sizes are measured in any case, and other load only adds.
    assert spent < 0.5 * llm.capture_seconds


def test_weights_are_counted_once_however_often_they_are_shared() -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(4, 8, bias=False), torch.nn.Embedding(8, 4)])
    model[1].weight = model[0].weight
    before = Weights.of(model)
    assert before.total == 4 * 8 * 4
    model[0].packed = torch.zeros(5)  # no parameter, as packed weights are
    assert Weights.of(model).total == 4 * 8 * 4 + 20
    assert Weights.of(model).grown_from(before) == 20


def test_weights_that_are_replaced_count_as_freed_unless_a_file_holds_them(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(4096 * 4))
    mapped = torch.from_file(str(path), size=4096, dtype=torch.float32)
    for weight, grown in ((torch.zeros(4096), 0), (mapped, 4096 * 4)):
        model = torch.nn.Module()
        model.weight = weight
        before = Weights.of(model)
        assert bool(before.mapped) is (weight is mapped)
        model.weight = torch.ones(4096)
        assert Weights.of(model).grown_from(before) == grown


@pytest.fixture
def own(tiny_checkpoint: TinyCheckpoint) -> LLM:
    """An engine whose costs and buckets a test may change."""
    return tiny_llm(tiny_checkpoint("qwen3_vl"), prefill_buckets=(16, 64), padding_cost="measured")


def test_batches_too_dear_to_pad_are_listed_with_their_rows_and_run_eager(own: LLM) -> None:
    cost = own.parts.costs[Phase.PREFILL]
    slow = CostCurve(((1, 1.0), (64, 64.0)))
    cost._times = BatchTimes(slow, slow)
    # 17 to 58 rows: 64 ms is more than 1.1 times their own; from 59 rows on the graph is kept.
    (row, beyond) = own.inspect()["eager"]["prefill"][-2:]
    assert (row["when"], row["reason"]) == ("17 to 58 rows", "padding_cost")
    assert beyond["reason"] == "no_bucket"
    text = own.generate("a" * 40)
    step = text.timings.steps[0].decision
    assert 17 <= step.tokens <= 58
    assert (step.mode, step.reason) == (Mode.EAGER, Reason.PADDING_COST)
    assert "ms" in step.detail


def test_a_quarantined_bucket_is_listed_for_all_the_batches_it_would_serve(own: LLM) -> None:
    runner = own.parts.runners[Phase.PREFILL]
    runner.quarantine(64, "wrong")
    assert runner.buckets.state(64) is BucketState.QUARANTINED
    rows = {row["when"]: row["reason"] for row in own.inspect()["eager"]["prefill"]}
    assert rows["17 to 64 rows"] == "quarantined"


def test_unread_inputs_are_unknown_without_a_proof(
    report: dict[str, Any], tiny_checkpoint: TinyCheckpoint
) -> None:
    assert report["unread_inputs"] is not None
    unproven = tiny_llm(tiny_checkpoint("llama"), prefill_buckets=(16,), proof="off")
    assert unproven.inspect()["unread_inputs"] is None
