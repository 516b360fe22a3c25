"""The rules in their order, each with its numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from firstlight.core.reason import Mode, Phase, Reason
from firstlight.graphs import (
    BucketState,
    BucketTable,
    Decider,
    DecisionCounter,
    Extent,
    PaddingIsFree,
)


@dataclass(frozen=True)
class Dear:
    """Refuses everything."""

    def too_dear(self, live: int, bucket: int) -> str | None:
        return f"{bucket} rows cost more than {live} eager"


def decider(state: BucketState = BucketState.READY) -> Decider:
    buckets = BucketTable([4, 16])
    for bucket in buckets.sizes:
        buckets.mark(bucket, state, "row 3 differs")
    return Decider(Phase.PREFILL, buckets, 2, 100, PaddingIsFree())


def test_a_batch_that_passes_every_rule_replays_the_smallest_bucket() -> None:
    decision = decider().decide(Extent(5, 2), 100)
    assert (decision.mode, decision.bucket, decision.padded) == (Mode.GRAPH, 16, 16)
    assert decision.reason is Reason.CAPTURED


def test_a_batch_as_long_as_a_bucket_needs_no_padding() -> None:
    assert decider().decide(Extent(4, 1), 4).bucket == 4


# Every case breaks its rule and all rules after it: the first that refuses gives the reason.
RULES = [
    (Reason.GRAPHS_OFF, {"enabled": False, "cost": Dear()}, Extent(99, 9), 999, ()),
    (Reason.NO_BUCKET, {"cost": Dear()}, Extent(17, 9), 999, ("17", "16")),
    (Reason.PADDING_COST, {"cost": Dear()}, Extent(5, 9), 999, ("16", "5")),
    (Reason.TOO_MANY_REQUESTS, {}, Extent(5, 3), 999, ("3", "2")),
    (Reason.CONTEXT_TOO_LONG, {}, Extent(5, 2), 101, ("101", "100")),
]


@pytest.mark.parametrize(("reason", "changes", "live", "context", "numbers"), RULES)
@pytest.mark.parametrize("state", [BucketState.WAITING, BucketState.QUARANTINED])
def test_the_first_rule_that_refuses_gives_the_reason_with_its_numbers(
    reason: Reason, changes: dict[str, object], live: Extent, context: int,
    numbers: tuple[str, ...], state: BucketState,
) -> None:  # fmt: skip
    decision = replace(decider(state), **changes).decide(live, context)  # type: ignore[arg-type]
    assert (decision.mode, decision.bucket, decision.reason) == (Mode.EAGER, None, reason)
    assert decision.padded == live.tokens
    assert all(number in decision.detail for number in numbers)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (BucketState.WAITING, Reason.NOT_CAPTURED),
        (BucketState.FAILED, Reason.CAPTURE_FAILED),
        (BucketState.QUARANTINED, Reason.QUARANTINED),
    ],
)
def test_a_bucket_that_is_not_ready_says_why(state: BucketState, reason: Reason) -> None:
    decision = decider(state).decide(Extent(5, 1), 5)
    assert (decision.bucket, decision.reason) == (None, reason)
    assert "16" in decision.detail
    assert ("row 3 differs" in decision.detail) == (state is not BucketState.WAITING)


def test_decisions_are_counted_by_phase_and_reason() -> None:
    counter = DecisionCounter()
    counter.add(decider().decide(Extent(5, 1), 5))
    counter.add(decider().decide(Extent(50, 1), 50))
    counts = counter.counts()
    assert counts[Phase.PREFILL, Reason.CAPTURED] == 1
    assert counts[Phase.PREFILL, Reason.NO_BUCKET] == 1
    assert sum(counts.values()) == 2
    assert len(counts) == len(Phase) * len(Reason)
