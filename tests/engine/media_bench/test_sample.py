"""Contestants take turns, and ratios are those of one round."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firstlight.engine.media_bench import Sample, interleave


def counting(log: list[str], name: str, seconds: float | None = None) -> Callable[[], float | None]:
    def turn() -> float | None:
        log.append(name)
        return seconds

    return turn


def test_every_other_round_runs_in_reverse_and_the_warm_up_does_not_count() -> None:
    log: list[str] = []
    found = interleave(
        {"a": counting(log, "a", 1.0), "b": counting(log, "b", 3.0)}, rounds=2, clock=lambda: 0.0
    )
    assert "".join(log) == "ba" + "ab" + "ba"
    assert found == {"a": Sample((1.0, 1.0)), "b": Sample((3.0, 3.0))}


def test_a_contestant_without_a_measure_of_its_own_is_timed_whole() -> None:
    ticks = iter([0.0, 5.0])
    found = interleave({"a": counting([], "a")}, rounds=1, clock=lambda: next(ticks), warmup=0)
    assert found["a"].seconds == (5.0,)


def test_a_ratio_is_the_median_of_the_rounds_own() -> None:
    # The second round hit a slow spell; the medians alone would say 10 to 2.
    assert Sample((1.0, 10.0, 1.5)).over(Sample((2.0, 20.0, 2.0))) == pytest.approx(0.5)


def test_times_are_told_in_milliseconds_of_one_item() -> None:
    told = Sample((0.004, 0.002, 0.012)).describe(items=2)
    assert told == {"median": 2.0, "least": 1.0, "most": 6.0}
