"""Several ways to do one thing, timed in turns, so that a slow spell of the machine hits all."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one contestant, a round each."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        """Of the rounds, in seconds."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """The least of the rounds, in seconds."""
        return min(self.seconds)

    def over(self, other: Sample) -> float:
        """The median of the rounds' own ratios to another contestant's."""
        pairs = zip(self.seconds, other.seconds, strict=True)
        return statistics.median(a / b for a, b in pairs)

    def describe(self, items: int = 1) -> dict[str, float]:
        """Median, least and most in ms for one of ``items`` that each round did; JSON-ready."""
        values = (self.median, self.best, max(self.seconds))
        ms = [round(value / items * 1e3, 4) for value in values]
        return dict(zip(("median", "least", "most"), ms, strict=True))


def interleave(
    contestants: Mapping[str, Callable[[], float | None]],
    *,
    rounds: int,
    clock: Callable[[], float],
    warmup: int = 1,
) -> dict[str, Sample]:
    """Run each contestant once a round, in turns, the order reversed every other round.

    Args:
        contestants: each may return its own seconds; with None the whole call counts.
        clock: seconds, monotonic.
        warmup: rounds before those that count.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(-warmup, rounds):
        for name in names if number % 2 == 0 else reversed(names):
            began = clock()
            own = contestants[name]()
            seconds = clock() - began if own is None else own
            if number >= 0:
                taken[name].append(seconds)
    return {name: Sample(tuple(values)) for name, values in taken.items()}
