"""Timing A against B on a noisy machine: in turns, round by round, medians and ratios."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds of one contestant over the rounds."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        return min(self.seconds)


def ratio(ours: Sample, theirs: Sample) -> float:
    """Median of the rounds' own ratios: a slow spell of the machine hits both sides of a round."""
    return statistics.median(a / b for a, b in zip(ours.seconds, theirs.seconds, strict=True))


def interleave(
    contestants: Mapping[str, Callable[[], float | None]], *, rounds: int, warmup: int = 1
) -> dict[str, Sample]:
    """Run each contestant once a round, in turns, with the order reversed every other round.

    A contestant may return its own measure in seconds; with None the whole call is timed.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    names = list(contestants)
    for round_ in range(-warmup, rounds):
        for name in names if round_ % 2 == 0 else reversed(names):
            began = time.perf_counter()
            own = contestants[name]()
            seconds = time.perf_counter() - began if own is None else own
            if round_ >= 0:
                taken[name].append(seconds)
    return {name: Sample(tuple(values)) for name, values in taken.items()}
