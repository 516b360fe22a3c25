"""What padding costs in this engine, measured once when the graphs of a phase are there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.graphs import (
    BatchTimes,
    CaptureReport,
    GraphRunner,
    Lengths,
    MeasuredCost,
    expected_waste,
)
from firstlight.graphs.measure import measure

SHARE = 0.05
"""Of the capture time that measuring may take; a start should not be noticeably longer for it."""
LEAST_SECONDS = 0.02
"""What measuring may take after captures of no time, e.g. of a toy."""
SHORTEST = 32
"""Rows of the shortest batch of the distribution that waste is expected on, if none is given."""

Costs = Mapping[Phase, MeasuredCost]


def unsettled_costs(config: EngineConfig) -> Costs:
    """A cost model for each phase; none where padding is free by decree."""
    return {phase: MeasuredCost() for phase in Phase} if config.padding_cost == "measured" else {}


def settle_costs(
    costs: Costs,
    runners: Mapping[Phase, GraphRunner],
    captures: Mapping[Phase, CaptureReport],
    seconds: float | None = None,
) -> None:
    """Measure every phase that has graphs; it decides by the result from then on.

    Args:
        seconds: what measuring a phase may take; None is :data:`SHARE` of its capture.
    """
    for phase, cost in costs.items():
        budget = seconds or max(SHARE * captures[phase].seconds, LEAST_SECONDS)
        times = measure(runners[phase], budget_s=budget)
        if times is not None:
            cost.settle(times)


def describe_costs(costs: Costs) -> dict[str, list[dict[str, Any]]]:
    """The measured times by phase and size, as ``plan-buckets --cost`` reads them."""
    return {
        phase.value: _by_rows(times)
        for phase, cost in costs.items()
        if (times := cost.times) is not None
    }


def describe_waste(buckets: tuple[int, ...], cost: MeasuredCost | None) -> list[dict[str, Any]]:
    """The expected waste of prefill buckets on log-uniform lengths up to the largest."""
    if not buckets:
        return []
    lengths = Lengths.log_uniform(min(SHORTEST, buckets[-1]), buckets[-1])
    times = None if cost is None else cost.times
    margin = 0.0 if cost is None else cost.margin
    waste = expected_waste(buckets, lengths, times, margin)
    return [
        {
            "lengths": lengths.label,
            "rows": round(waste.rows, 4),
            "time": None if waste.time is None else round(waste.time, 4),
            "eager": round(waste.eager, 4),
        }
    ]


def _by_rows(times: BatchTimes) -> list[dict[str, Any]]:
    eager = {} if times.eager is None else dict(times.eager.points)
    replay = dict(times.replay.points)
    return [
        {
            "rows": rows,
            "eager_ms": None if rows not in eager else round(eager[rows], 4),
            "replay_ms": None if rows not in replay else round(replay[rows], 4),
        }
        for rows in sorted(eager | replay)
    ]
