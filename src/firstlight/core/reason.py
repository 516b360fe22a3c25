"""Why a batch ran as it did."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Phase(StrEnum):
    """Which runner a batch goes to."""

    PREFILL = "prefill"
    DECODE = "decode"


class Mode(StrEnum):
    """How a batch ran."""

    GRAPH = "graph"
    EAGER = "eager"


class Reason(StrEnum):
    """Why a batch ran eager; ``CAPTURED`` is the one that did not."""

    CAPTURED = "captured"
    GRAPHS_OFF = "graphs_off"
    NO_BUCKET = "no_bucket"
    PADDING_COST = "padding_cost"
    TOO_MANY_REQUESTS = "too_many_requests"
    CONTEXT_TOO_LONG = "context_too_long"
    NOT_CAPTURED = "not_captured"
    NOT_PROVEN = "not_proven"
    CAPTURE_FAILED = "capture_failed"
    QUARANTINED = "quarantined"

    @property
    def meaning(self) -> str:
        """The rule in words, as the documentation lists it."""
        return _MEANINGS[self]


_MEANINGS = {
    Reason.CAPTURED: "The batch ran from a captured graph.",
    Reason.GRAPHS_OFF: "Graphs are turned off (`eager=True`, or the eager backend).",
    Reason.NO_BUCKET: "The batch has more tokens than the largest bucket.",
    Reason.PADDING_COST: "Padding to the next bucket was measured to cost more than running eager.",
    Reason.TOO_MANY_REQUESTS: "The batch has more requests than the graphs were captured for.",
    Reason.CONTEXT_TOO_LONG: "A request's context is longer than the graphs' page tables hold.",
    Reason.NOT_CAPTURED: "The bucket has not been captured yet.",
    Reason.NOT_PROVEN: "The bucket is captured, and not yet proven equal to eager execution.",
    Reason.CAPTURE_FAILED: "The bucket could not be captured; the report says why.",
    Reason.QUARANTINED: "The bucket's replay was not equal to eager execution; it serves nobody.",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """How one batch will run; made once, carried to the step, counted, reported.

    Attributes:
        bucket: rows of the graph that replays, or None for eager.
        tokens: live rows of the batch.
        reason: ``Reason.CAPTURED`` for a replay, else the first rule that refused.
        detail: one sentence with the numbers of that rule.
    """

    phase: Phase
    bucket: int | None
    tokens: int
    reason: Reason
    detail: str = ""

    @property
    def mode(self) -> Mode:
        return Mode.EAGER if self.bucket is None else Mode.GRAPH

    @property
    def padded(self) -> int:
        """Rows that the step computes, padding included."""
        return self.tokens if self.bucket is None else self.bucket
