"""Times eager runs against replays at a few sizes, within a budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from firstlight.graphs.backend import Graph
from firstlight.graphs.bucket import BucketState, BucketTable
from firstlight.graphs.clock import OwnTime
from firstlight.graphs.cost import BatchTimes, CostCurve

MAX_SIZES = 8
MAX_ROUNDS = 5
MIN_ROUNDS = 2
MIN_SIZES = 2
"""Sizes that are measured whatever the budget says: a curve needs two points."""


class Measurable(Protocol):
    """The part of a runner that is timed."""

    @property
    def buckets(self) -> BucketTable: ...

    @property
    def graphs(self) -> Mapping[int, Graph]: ...

    def dry_run(self, rows: int, bucket: int | None) -> Callable[[], object]:
        """A call that runs a neutral batch of ``rows``, by the graph of ``bucket`` or eager."""
        ...


@dataclass(slots=True)
class _Trials:
    """Best seconds of each size, and what the trials took together."""

    runner: Measurable
    clock: Callable[[], float]
    began: float = 0.0
    eager: dict[int, float] = field(default_factory=dict)
    replay: dict[int, float] = field(default_factory=dict)

    @property
    def spent(self) -> float:
        return self.clock() - self.began

    def size(self, rows: int, *, captured: bool, until: float) -> None:
        """Rounds of eager and replay in turns, at least two, until ``until`` seconds are spent."""
        calls = [(self.eager, self.runner.dry_run(rows, None))]
        if captured:
            calls.append((self.replay, self.runner.dry_run(rows, rows)))
        for done in range(MAX_ROUNDS):
            if done >= MIN_ROUNDS and self.spent > until:
                break
            # A slow spell of the machine should hit both sides, and neither always first.
            for best, call in calls if done % 2 == 0 else calls[::-1]:
                began = self.clock()
                call()
                took = self.clock() - began
                best[rows] = min(took, best.get(rows, took))


def measure(
    runner: Measurable, *, budget_s: float, clock: Callable[[], float] | None = None
) -> BatchTimes | None:
    """Eager and replay times of a runner whose graphs are captured; None if it has none.

    A few sizes are run, smallest first, as long as the next one is expected to fit ``budget_s``;
    the two smallest always are. Of the runs of a size the fastest counts: other load on the
    machine only ever adds time.

    Args:
        clock: seconds; by default time that this thread spends waiting for a core is left out.
    """
    if clock is not None:
        return _measure(runner, budget_s, clock)
    with OwnTime() as own:
        return _measure(runner, budget_s, own)


def _measure(runner: Measurable, budget_s: float, clock: Callable[[], float]) -> BatchTimes | None:
    ready = [s for s in runner.buckets.sizes if runner.buckets.state(s) is BucketState.READY]
    if not ready:
        return None
    trials = _Trials(runner, clock, clock())
    sizes = spread(ready, MAX_SIZES)
    if sizes[0] > 1:
        trials.size(1, captured=False, until=budget_s / (len(sizes) + 1))
    for done, rows in enumerate(sizes):
        if done >= MIN_SIZES and trials.spent + _expected(trials, rows) > budget_s:
            break
        left = (budget_s - trials.spent) / (len(sizes) - done)
        trials.size(rows, captured=True, until=trials.spent + left)
    return BatchTimes(_curve(trials.eager), _curve(trials.replay), trials.spent)


def spread(sizes: Sequence[int], count: int) -> list[int]:
    """At most ``count`` of ``sizes``, evenly spread by ratio, the first and the last included."""
    if len(sizes) <= count:
        return list(sizes)
    low, high = sizes[0], sizes[-1]
    aims = [low * (high / low) ** (i / (count - 1)) for i in range(count)]
    return sorted({min(sizes, key=lambda s: abs(s / aim - 1)) for aim in aims})


def _expected(trials: _Trials, rows: int) -> float:
    """Seconds that the fewest rounds of ``rows`` take, in proportion to the size before it."""
    before = max(trials.replay)
    pair = trials.eager[before] + trials.replay[before]
    return MIN_ROUNDS * pair * rows / before


def _curve(best: Mapping[int, float]) -> CostCurve:
    return CostCurve.through({rows: seconds * 1e3 for rows, seconds in best.items()})
