"""How one batch will run: decided here, once, and carried along with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from firstlight.core.reason import Decision, Phase, Reason
from firstlight.graphs.bucket import BucketState, BucketTable
from firstlight.graphs.slot import Extent


class CostModel(Protocol):
    """What padding costs against running eager."""

    def too_dear(self, live: int, bucket: int) -> str | None:
        """Why replaying ``bucket`` for ``live`` rows loses to eager, with numbers; None if not."""
        ...


class PaddingIsFree:
    """Never prefers eager; stands until costs are measured."""

    def too_dear(self, live: int, bucket: int) -> str | None:
        """None."""
        return None


@dataclass(frozen=True, slots=True)
class Decider:
    """Applies the rules in their order and returns the first that refuses, or the bucket.

    The bucket is the smallest that holds the batch: a function of its length alone, so that equal
    batches run equally.

    Attributes:
        max_requests: request rows of the slots.
        max_context: the longest context that the captured attention metadata can describe.
        cost: prices padding.
        enabled: False where the user turned graphs off.
    """

    phase: Phase
    buckets: BucketTable
    max_requests: int
    max_context: int
    cost: CostModel
    enabled: bool = True

    def decide(self, live: Extent, max_context: int) -> Decision:
        """The decision for ``live`` rows whose longest request reaches ``max_context`` tokens."""
        bucket = self.buckets.fitting(live.tokens)
        refusal = self._refusal(live, max_context, bucket)
        if refusal is None:
            assert bucket is not None
            detail = f"{live.tokens} rows in the graph of {bucket}"
            return Decision(self.phase, bucket, live.tokens, Reason.CAPTURED, detail)
        reason, detail = refusal
        return Decision(self.phase, None, live.tokens, reason, detail)

    def _refusal(
        self, live: Extent, max_context: int, bucket: int | None
    ) -> tuple[Reason, str] | None:
        if not self.enabled:
            return Reason.GRAPHS_OFF, "graphs are turned off"
        if bucket is None:
            largest = self.buckets.largest
            return Reason.NO_BUCKET, f"{live.tokens} rows, the largest bucket has {largest}"
        dear = self.cost.too_dear(live.tokens, bucket)
        if dear is not None:
            return Reason.PADDING_COST, dear
        if live.requests > self.max_requests:
            return (
                Reason.TOO_MANY_REQUESTS,
                f"{live.requests} requests, the slots hold {self.max_requests}",
            )
        if max_context > self.max_context:
            return (
                Reason.CONTEXT_TOO_LONG,
                f"a context of {max_context} tokens, the slots describe {self.max_context}",
            )
        return self._state_refusal(bucket)

    def _state_refusal(self, bucket: int) -> tuple[Reason, str] | None:
        state, why = self.buckets.state(bucket), self.buckets.why(bucket)
        if state is BucketState.WAITING:
            return Reason.NOT_CAPTURED, f"the bucket of {bucket} rows is not captured yet"
        if state is BucketState.UNPROVEN:
            return Reason.NOT_PROVEN, f"the graph of {bucket} rows is captured and not proven yet"
        if state is BucketState.FAILED:
            return Reason.CAPTURE_FAILED, f"the bucket of {bucket} rows: {why}"
        if state is BucketState.QUARANTINED:
            return Reason.QUARANTINED, f"the bucket of {bucket} rows is quarantined: {why}"
        return None


@dataclass(frozen=True, slots=True)
class RowCounts:
    """Rows of all batches of a phase: ``live`` ones, and those that padding added to them."""

    live: int
    padding: int


class DecisionCounter:
    """How often batches ran as they did, by phase and reason; all combinations start at zero."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Phase, Reason]] = Counter()
        self._replays: Counter[tuple[Phase, int]] = Counter()
        self._live: Counter[Phase] = Counter()
        self._padding: Counter[Phase] = Counter()

    def add(self, decision: Decision) -> None:
        """Count one batch."""
        phase = decision.phase
        self._counts[phase, decision.reason] += 1
        if decision.bucket is not None:
            self._replays[phase, decision.bucket] += 1
        self._live[phase] += decision.tokens
        self._padding[phase] += decision.padded - decision.tokens

    def replays(self) -> dict[tuple[Phase, int], int]:
        """Batches that ran from the graph of each bucket; a bucket that never did is not there."""
        return dict(self._replays)

    def rows(self) -> dict[Phase, RowCounts]:
        """The rows of each phase."""
        return {phase: RowCounts(self._live[phase], self._padding[phase]) for phase in Phase}

    def counts(self) -> dict[tuple[Phase, Reason], int]:
        """A copy of all counts."""
        return {
            (phase, reason): self._counts[phase, reason] for phase in Phase for reason in Reason
        }
