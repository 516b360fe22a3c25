"""For each reason, something that provokes it, read back where a user or a runner sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.reason import Decision, Mode, Phase, Reason
from firstlight.graphs import BucketState, Extent
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm
from tests.graphs.proof.rig import Rig

FEW = SamplingParams(temperature=0, max_tokens=2, ignore_eos=True)
PROMPT = "abcdefgh" * 3


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(
        tiny_checkpoint("llama"), prefill_buckets=(8, 32), max_num_seqs=2, max_batch_tokens=64
    )


@pytest.fixture(scope="module")
def eager(tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(tiny_checkpoint("llama"), eager=True)


def first(llm: LLM, prompt: str = PROMPT) -> Decision:
    """How the prefill of a prompt ran, as its timings say."""
    return llm.generate(prompt, FEW).timings.steps[0].decision


class Dear:
    """A cost model for which padding never pays."""

    def too_dear(self, live: int, bucket: int) -> str | None:
        """Always."""
        return f"{live} rows in the graph of {bucket} take 2 ms, eager 1 ms"


def marked(llm: LLM, state: BucketState) -> Decision:
    """The prompt's decision while its bucket is in ``state``."""
    table = llm.parts.runners[Phase.PREFILL].buckets
    table.mark(32, state, "because")
    try:
        return first(llm)
    finally:
        table.mark(32, BucketState.READY)


def padded_dear(llm: LLM) -> Decision:
    """The prompt's decision where padding costs more than eager."""
    runner = llm.parts.runners[Phase.PREFILL]
    plain = runner._decider
    runner._decider = replace(plain, cost=Dear())
    try:
        return first(llm)
    finally:
        runner._decider = plain


def decide(llm: LLM, live: Extent, context: int) -> Decision:
    """The prefill runner's decision."""
    return llm.parts.runners[Phase.PREFILL].decide(live, context)


PROVOKED: dict[Reason, tuple[Callable[[LLM, LLM], Decision], str]] = {
    Reason.CAPTURED: (lambda llm, _: first(llm), "in the graph of 32"),
    Reason.GRAPHS_OFF: (lambda _, eager: first(eager), "turned off"),
    Reason.NO_BUCKET: (lambda llm, _: first(llm, "abcdefgh" * 6), "largest bucket has 32"),
    Reason.PADDING_COST: (lambda llm, _: padded_dear(llm), "eager 1 ms"),
    Reason.TOO_MANY_REQUESTS: (
        lambda llm, _: decide(llm, Extent(9, 3), 9),
        "3 requests, the slots hold 2",
    ),
    Reason.CONTEXT_TOO_LONG: (
        lambda llm, _: decide(llm, Extent(9, 1), 10**6),
        "a context of 1000000 tokens",
    ),
    Reason.NOT_CAPTURED: (
        lambda _llm, _eager: Rig().runner.decide(Extent(3, 1), 3),
        "bucket of 4 rows is not captured yet",
    ),
    Reason.NOT_PROVEN: (
        lambda llm, _: marked(llm, BucketState.UNPROVEN),
        "captured and not proven yet",
    ),
    Reason.CAPTURE_FAILED: (lambda llm, _: marked(llm, BucketState.FAILED), "because"),
    Reason.QUARANTINED: (lambda llm, _: marked(llm, BucketState.QUARANTINED), "quarantined"),
}


@pytest.mark.parametrize("reason", list(Reason))
def test_each_reason_is_given_with_its_numbers(reason: Reason, llm: LLM, eager: LLM) -> None:
    provoke, words = PROVOKED[reason]
    decision = provoke(llm, eager)
    assert decision.reason is reason
    assert words in decision.detail
    assert decision.mode is (Mode.GRAPH if reason is Reason.CAPTURED else Mode.EAGER)
