"""What the scheduler has done, for metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerStats:
    """Requests now, and counts since the start.

    Attributes:
        waiting: requests that hold no pages, preempted ones included.
        running: requests that hold pages.
        steps: plans made.
        planned_tokens: rows of these plans.
        last_tokens: rows of the latest plan; 0 before the first.
        preempted: times that a running request had to give its pages back.
        stalled: times that the youngest running request found no page and sat a step out.
        displaced: decode rows that sat a step out for a block that had no room beside them.
    """

    waiting: int
    running: int
    steps: int
    planned_tokens: int
    last_tokens: int
    preempted: int
    stalled: int
    displaced: int


@dataclass(slots=True)
class Counters:
    """The counts of :class:`SchedulerStats` while they grow."""

    steps: int = 0
    planned_tokens: int = 0
    last_tokens: int = 0
    preempted: int = 0
    stalled: int = 0
    displaced: int = 0

    def planned(self, tokens: int) -> None:
        """Count a plan of this many rows."""
        self.steps += 1
        self.planned_tokens += tokens
        self.last_tokens = tokens

    def freeze(self, *, waiting: int, running: int) -> SchedulerStats:
        """The counts as they are now, with the lengths of the two queues."""
        return SchedulerStats(
            waiting=waiting,
            running=running,
            steps=self.steps,
            planned_tokens=self.planned_tokens,
            last_tokens=self.last_tokens,
            preempted=self.preempted,
            stalled=self.stalled,
            displaced=self.displaced,
        )
