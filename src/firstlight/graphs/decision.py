"""How one batch will run: decided here, once, and carried along with its reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
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
            rows = "1 row" if live.tokens == 1 else f"{live.tokens} rows"
            detail = f"{rows} in the graph of {bucket}"
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
        return not_ready(self.buckets, bucket, f"the bucket of {bucket} rows")


_NOT_READY: Mapping[BucketState, tuple[Reason, str]] = MappingProxyType(
    {
        BucketState.WAITING: (Reason.NOT_CAPTURED, "is not captured yet"),
        BucketState.UNPROVEN: (Reason.NOT_PROVEN, "is captured and not proven yet"),
        BucketState.FAILED: (Reason.CAPTURE_FAILED, "could not be captured: {why}"),
        BucketState.QUARANTINED: (Reason.QUARANTINED, "is quarantined: {why}"),
    }
)


def not_ready(buckets: BucketTable, bucket: int, name: str) -> tuple[Reason, str] | None:
    """Why the graph of a bucket serves nobody, as a reason and a sentence; None if it serves.

    Args:
        name: of the bucket in the sentence.
    """
    found = _NOT_READY.get(buckets.state(bucket))
    if found is None:
        return None
    reason, what = found
    return reason, f"{name} {what.format(why=buckets.why(bucket))}"


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
