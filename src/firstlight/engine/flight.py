"""A step between its issue and the arrival of its tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from firstlight.config import EngineConfig
from firstlight.core.plan import BatchPlan
from firstlight.engine.sequence import Sequence
from firstlight.engine.step import StepResult


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A batch and how it was issued; a step has one, or several where it had to be split."""

    plan: BatchPlan[Sequence]
    result: StepResult


@dataclass(frozen=True, slots=True, eq=False)
class Flight:
    """One step under way.

    Attributes:
        began: clock reading when it was issued, in seconds.
        decoding: requests that had a token before, by identity.
        may_stay: whether the next step may be planned before this one has arrived.
    """

    parts: tuple[Part, ...]
    began: float
    decoding: frozenset[int]
    may_stay: bool

    @property
    def ended(self) -> frozenset[int]:
        """Of the requests that take part, those that have ended meanwhile, by identity."""
        return frozenset(id(r) for r in self._requests if r.finish is not None)

    @property
    def is_wanted(self) -> bool:
        """Whether a request that takes part has not ended."""
        return any(r.finish is None for r in self._requests)

    @property
    def rows(self) -> int:
        """Rows that it computes."""
        return sum(part.plan.tokens for part in self.parts)

    @property
    def tokens(self) -> int:
        """Tokens that it brings."""
        return sum(len(part.result.requests) for part in self.parts)

    @property
    def _requests(self) -> Iterator[Sequence]:
        return (chunk.request for part in self.parts for chunk in part.plan.chunks)


def needs_its_tokens(part: Part) -> bool:
    """Whether what comes next depends on this batch's tokens, not only on their number.

    A grammar and penalties follow the tokens themselves; a request that gets its last token is
    gone, with its pages, before the next step is planned.
    """
    return any(s.sampling.follows_tokens or s.is_full for s in part.result.requests)


def overlaps(config: EngineConfig) -> bool:
    """Whether the next step may be issued while the last one is under way.

    By default where that saves something: a CPU has computed a step when it is issued.
    """
    setting = config.overlap_schedule
    return config.on_gpu if setting == "auto" else setting == "on"
