"""Graphs that a start leaves for later."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from torch import nn

from firstlight import LLM, SamplingParams
from firstlight.config import EngineConfig
from firstlight.core.reason import Mode, Phase, Reason
from firstlight.engine import late
from firstlight.engine.aio import AsyncEngine, ServingLimits, step_loop
from firstlight.engine.late import first_buckets, may_be_late, provable_rows
from firstlight.graphs import GraphRunner
from firstlight.graphs.proof import BucketProof, Finding, Prover
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm

FEW = SamplingParams(temperature=0, max_tokens=3, ignore_eos=True)
SIZES = (16, 64, 128)
LONG = "abcdefgh" * 12


@pytest.fixture
def started(tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[LLM]:
    """An engine of which one prefill bucket is ready."""
    monkeypatch.setattr(late, "FIRST_WORK", 1)
    with tiny_llm(
        tiny_checkpoint("llama"), prefill_buckets=SIZES, late=True, padding_cost="measured"
    ) as llm:
        yield llm


def prefill(llm: LLM) -> GraphRunner:
    return llm.parts.runners[Phase.PREFILL]


def states(llm: LLM) -> list[str]:
    return [row["state"] for row in llm.inspect()["buckets"]["prefill"]]


def test_a_late_start_leaves_all_prefill_buckets_but_the_first(started: LLM) -> None:
    assert states(started) == ["ready", "waiting", "unproven"]
    assert started.parts.late.left == 2
    assert not started.parts.runners[Phase.DECODE].late


def test_answers_before_and_after_are_the_same_and_say_how_they_ran(started: LLM) -> None:
    before = started.generate(LONG, FEW)
    while started.parts.late.next():
        pass
    after = started.generate(LONG, FEW)
    assert before.token_ids == after.token_ids
    assert before.timings.steps[0].decision.reason is Reason.NOT_PROVEN
    assert after.timings.steps[0].decision.mode is Mode.GRAPH


def test_each_call_completes_the_smallest_bucket_that_is_left(started: LLM) -> None:
    assert started.parts.late.next()
    assert states(started) == ["ready", "ready", "unproven"]
    assert started.parts.late.next()
    assert states(started) == ["ready", "ready", "ready"]
    assert started.parts.late.next()  # what padding costs
    assert not started.parts.late.next()


def test_late_buckets_are_reported_as_if_they_had_been_proven_at_the_start(started: LLM) -> None:
    seconds = started.parts.capture_seconds
    while started.parts.late.next():
        pass
    rows = started.inspect()["buckets"]["prefill"]
    assert {row["proof"] for row in rows} == {"quick: 1 case passed"}
    assert all(row["seconds"] > 0 and row["seconds_by_part"]["proof"] > 0 for row in rows)
    assert started.parts.capture_seconds > seconds


def test_padding_is_priced_when_no_bucket_of_the_phase_is_left(started: LLM) -> None:
    costs = started.parts.costs
    assert costs[Phase.DECODE].times is not None
    assert costs[Phase.PREFILL].times is None
    while started.parts.late.next():
        pass
    assert costs[Phase.PREFILL].times is not None


def test_a_late_bucket_whose_proof_fails_is_quarantined_and_logged(
    started: LLM, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    proven = Prover.prove

    def wrong(self: Prover, *args: object, **kwargs: object) -> BucketProof:
        proof = proven(self, *args, **kwargs)  # type: ignore[arg-type]
        return replace(proof, findings=(Finding("mixed", "replay and eager", "row 3"),))

    monkeypatch.setattr(Prover, "prove", wrong)
    started.parts.late.next()
    assert states(started)[1] == "quarantined"
    assert "prefill graph of 64 rows: quarantined: " in caplog.text
    assert started.generate("abcdefgh" * 5, FEW).timings.steps[0].decision.reason is (
        Reason.QUARANTINED
    )


def test_a_late_capture_that_fails_is_reported_and_the_next_one_tried(
    started: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(prefill(started).backend, "capture", refuse)
        assert started.parts.late.next()
    assert states(started)[1] == "failed"
    failures = started.parts.captures[Phase.PREFILL].failures
    assert [(f.bucket, f.error) for f in failures] == [(64, "no room")]
    assert started.parts.late.next()
    assert states(started) == ["ready", "failed", "ready"]


def test_a_proof_takes_pages_of_the_prefix_cache_last_and_leaves_the_pool_whole(
    started: LLM,
) -> None:
    free = started.parts.kv.n_free
    while started.parts.late.next():
        pass
    assert started.parts.kv.n_free == free


def test_beside_requests_that_hold_the_pages_a_bucket_stays_late(started: LLM) -> None:
    assert started.parts.late.next_beside(63)
    assert states(started) == ["ready", "waiting", "unproven"]
    assert started.parts.late.next_beside(64)
    assert states(started) == ["ready", "ready", "unproven"]


def test_beside_requests_whose_windows_hold_a_side_a_bucket_stays_late(
    tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pages of all contexts are many; those of the layers with a window are short."""
    monkeypatch.setattr(late, "FIRST_WORK", 1)
    few = {"max_context": 112, "max_batch_tokens": 64, "kv_pages": 900, "sliding_pages": 25}
    buckets = {"prefill_buckets": (8, 64), "decode_buckets": (8,)}
    with tiny_llm(tiny_checkpoint("gemma3"), max_num_seqs=8, late=True, **few, **buckets) as llm:
        parts, params = llm.parts, replace(FEW, max_tokens=20)
        requests = [parts.admission.text(LONG[:9], (), params) for _ in range(8)]
        for request in requests:
            parts.engine.add(request)
        beside = set()
        while parts.engine.step():
            if parts.scheduler.stats.running == len(requests):
                parts.late.next_beside(provable_rows(parts.kv, 112))
                beside.add(parts.late.left)
        assert beside == {1}
        while parts.late.next():
            pass
        assert states(llm) == ["ready"] * 2


def test_a_server_that_is_never_quiet_comes_to_them_between_steps(
    started: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_loop, "_QUIET_S", 60.0)
    monkeypatch.setattr(step_loop, "_BUSY_S", 0.0)
    many = replace(FEW, max_tokens=40)
    alone = started.generate(LONG, many).token_ids

    async def served() -> tuple[int, ...]:
        engine = AsyncEngine(started.parts, ServingLimits(), clock=time.perf_counter)
        await engine.start()
        try:
            async with engine.text(LONG, many) as stream:
                return (await stream.completions())[0].token_ids
        finally:
            await engine.close()

    assert asyncio.run(served()) == alone
    assert started.parts.late.left == 0


@pytest.mark.parametrize(("rows", "found"), [(96, (16, 32, 48)), (95, (16, 32)), (1, (16,))])
def test_a_start_proves_buckets_as_the_weights_allow_and_the_smallest_always(
    rows: int, found: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    linear = nn.Linear(10, 10, bias=False)
    looked_up = nn.Embedding(1000, 10)  # a row of it is read for a token, not all of it
    monkeypatch.setattr(late, "FIRST_WORK", rows * linear.weight.nbytes)
    assert first_buckets(nn.ModuleList([linear, looked_up]), (16, 32, 48)) == found


@pytest.mark.parametrize(
    ("settings", "may"), [({}, True), ({"sanitize": True}, False), ({"proof": "full"}, False)]
)
def test_what_proves_or_watches_all_graphs_together_leaves_none(
    settings: dict[str, object], may: bool
) -> None:
    assert may_be_late(EngineConfig.from_options(settings)) is may
