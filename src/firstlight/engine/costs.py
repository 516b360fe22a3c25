"""What padding costs in this engine, measured once between capture and the first request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.graphs import CaptureReport, GraphRunner, Lengths, MeasuredCost, expected_waste
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


def describe_costs(costs: Costs) -> dict[str, Any]:
    """What was measured, by phase: ``[rows, ms]`` pairs, as ``plan-buckets --cost`` reads them."""
    return {
        phase.value: {
            "eager_ms": _pairs(times.eager.points),
            "replay_ms": _pairs(times.replay.points),
            "margin": cost.margin,
            "seconds": round(times.seconds, 4),
        }
        for phase, cost in costs.items()
        if (times := cost.times) is not None and times.eager is not None
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


def _pairs(points: tuple[tuple[int, float], ...]) -> list[list[float]]:
    return [[rows, round(ms, 4)] for rows, ms in points]
