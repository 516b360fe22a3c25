"""Measuring costs: which sizes, in which order, within which budget."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from firstlight.core.reason import Mode, Phase, Reason
from firstlight.graphs import BucketState, BucketTable, Decider, Extent
from firstlight.graphs.clock import OwnTime
from firstlight.graphs.cost import BatchTimes, CostCurve, MeasuredCost
from firstlight.graphs.measure import MAX_SIZES, measure, spread
from tests.graphs.decoder import CAPACITY, Rig


@dataclass
class FakeRunner:
    """Batches take 2 + rows/10 ms eager and 1 + rows/10 ms by graph, on a clock of its own."""

    sizes: tuple[int, ...]
    now: float = 0.0
    calls: list[tuple[int, int | None]] = field(default_factory=list)
    disturbed: Callable[[int], float] = lambda n: 0.0

    def __post_init__(self) -> None:
        self.buckets = BucketTable(self.sizes)
        self.graphs: Mapping[int, Any] = {size: SimpleNamespace() for size in self.sizes}
        for size in self.sizes:
            self.buckets.mark(size, BucketState.READY)

    def clock(self) -> float:
        return self.now

    def dry_run(self, rows: int, bucket: int | None) -> Callable[[], object]:
        def call() -> None:
            self.calls.append((rows, bucket))
            self.now += ((2 if bucket is None else 1) + rows / 10) * 1e-3
            self.now += self.disturbed(len(self.calls))

        return call


def test_few_sizes_are_measured_and_give_the_times_that_were_taken() -> None:
    runner = FakeRunner(tuple(range(16, 1025, 16)))
    times = measure(runner, budget_s=60, clock=runner.clock)
    assert times is not None
    assert times.eager is not None
    assert len({rows for rows, _ in runner.calls}) <= MAX_SIZES + 1
    for rows in (16, 100, 1024):
        assert times.replay.at(rows) == pytest.approx(1 + rows / 10)
        assert times.eager.at(rows) == pytest.approx(2 + rows / 10)
    assert times.seconds == pytest.approx(runner.now)


def test_eager_is_also_measured_for_a_single_row() -> None:
    runner = FakeRunner((16, 32))
    times = measure(runner, budget_s=1, clock=runner.clock)
    assert times is not None
    assert times.eager is not None
    rows, ms = times.eager.points[0]
    assert rows == 1
    assert ms == pytest.approx(2.1)


def test_the_budget_ends_the_measurement_before_the_large_sizes() -> None:
    runner = FakeRunner((16, 32, 64, 128, 256, 512, 1024))
    times = measure(runner, budget_s=0.1, clock=runner.clock)
    assert times is not None
    assert 32 < times.replay.last < 1024
    assert runner.now <= 0.1


def test_two_sizes_are_measured_even_without_a_budget() -> None:
    runner = FakeRunner((16, 32, 64))
    times = measure(runner, budget_s=0, clock=runner.clock)
    assert times is not None
    assert [rows for rows, _ in times.replay.points] == [16, 32]


def test_eager_and_replay_take_turns_and_neither_is_always_first() -> None:
    runner = FakeRunner((8,))
    measure(runner, budget_s=60, clock=runner.clock)
    at_eight = [bucket for rows, bucket in runner.calls if rows == 8]
    assert at_eight == [None, 8, 8, None, None, 8, 8, None, None, 8]


def test_single_disturbed_runs_do_not_count() -> None:
    runner = FakeRunner((8, 64), disturbed=lambda n: 0.05 if n % 3 == 0 else 0.0)
    times = measure(runner, budget_s=60, clock=runner.clock)
    assert times is not None
    assert times.replay.at(64) == pytest.approx(7.4)


def test_a_runner_without_a_ready_graph_has_no_costs() -> None:
    runner = FakeRunner((8,))
    runner.buckets.mark(8, BucketState.QUARANTINED, "wrong")
    assert measure(runner, budget_s=1, clock=runner.clock) is None
    assert runner.calls == []


@pytest.mark.parametrize("count", [2, 3, 6])
def test_a_spread_has_both_ends_and_at_most_the_count(count: int) -> None:
    chosen = spread(range(16, 2049, 16), count)
    assert (chosen[0], chosen[-1]) == (16, 2048)
    assert len(chosen) <= count


def test_measuring_a_real_runner_leaves_its_results_as_they_were() -> None:
    rig = Rig()
    rig.runner.capture_all()
    rows = rig.rows(6)
    before = rig.fill(rows).clone()
    times = measure(rig.runner, budget_s=0.05)
    assert times is not None
    assert all(ms > 0 for _, ms in times.replay.points)
    rig.decoder.clear()
    assert torch.equal(rig.fill(rows), before)


def test_the_runner_decides_by_what_was_measured_of_it() -> None:
    rig = Rig(buckets=(4, 24))
    rig.runner.capture_all()
    measured = measure(rig.runner, budget_s=0.05)
    assert measured is not None
    assert measured.eager is not None
    # What the measured times of a slower machine would be: a replay costs by the row.
    dear = CostCurve.through({rows: 1.0 * rows for rows, _ in measured.replay.points})
    cheap = CostCurve.through({rows: 0.5 * rows for rows, _ in measured.eager.points})
    cost = MeasuredCost()
    rig.decider = Decider(Phase.PREFILL, rig.buckets, CAPACITY.requests, 64, cost)
    assert rig.decider.decide(Extent(5, 1), 5).mode is Mode.GRAPH
    cost.settle(BatchTimes(cheap, dear))
    padded = rig.decider.decide(Extent(5, 1), 5)
    assert (padded.mode, padded.reason) == (Mode.EAGER, Reason.PADDING_COST)
    assert "12.00 ms" in padded.detail
    assert "2.50 ms" in padded.detail


def test_the_clock_goes_on_and_survives_its_close() -> None:
    with OwnTime() as clock:
        began = clock()
        sum(range(20_000))
        took = clock() - began
    assert took > 0
    assert clock() >= 0


def test_a_wait_between_the_two_readings_of_the_clock_is_not_taken_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits = iter([0.0, 5.0, 5.0])
    with OwnTime() as clock:
        monkeypatch.setattr(clock, "_waited", lambda: next(waits))
        began = time.perf_counter()
        assert clock() >= began - 5.0
    assert next(waits, None) is None
