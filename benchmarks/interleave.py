"""Timing A against B on a noisy machine: in turns, round by round, medians and ratios."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from firstlight.engine.media_bench import Sample
from firstlight.engine.media_bench import interleave as in_turns

__all__ = ["Sample", "interleave", "ratio"]


def ratio(ours: Sample, theirs: Sample) -> float:
    """Median of the rounds' own ratios: a slow spell of the machine hits both sides of a round."""
    return ours.over(theirs)


def interleave(
    contestants: Mapping[str, Callable[[], float | None]], *, rounds: int, warmup: int = 1
) -> dict[str, Sample]:
    """Run each contestant once a round, in turns, on the machine's own clock.

    A contestant may return its own measure in seconds; with None the whole call is timed.
    """
    return in_turns(contestants, rounds=rounds, clock=time.perf_counter, warmup=warmup)
