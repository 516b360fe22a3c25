"""A plan beside the lists that would be used without it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from firstlight.cli.plan_costs import Costs, costs_of_report
from firstlight.graphs import Lengths, default_ladder, expected_waste
from firstlight.graphs.cost import MARGIN
from firstlight.graphs.planner import CaptureCosts, Plan
from firstlight.graphs.waste import sglang_ladder


def compare(plan: Plan, lengths: Lengths, costs: Costs) -> dict[str, Any]:
    """The plan and, for each list, its expected waste and what its captures take."""
    longest = lengths.rows[-1]
    lists = {
        "planned": plan.buckets,
        "default ladder": default_ladder(longest),
        "SGLang's ladder": _sglang_up_to(longest),
    }
    return {
        "buckets": list(plan.buckets),
        "lengths": lengths.label,
        "costs": costs.source,
        "multiple_of": plan.align,
        "gap": plan.gap,
        "lists": [_row(name, sizes, lengths, costs) for name, sizes in lists.items()],
    }


def waste_row(report: Mapping[str, Any], lengths: Lengths) -> dict[str, Any]:
    """The expected waste of the prefill buckets in a report of ``LLM.inspect()``.

    By measured times with the margin that the engine decides with, or by rows where padding is
    taken to be free.
    """
    sizes = [bucket["size"] for bucket in report["buckets"]["prefill"]]
    measured = "prefill" in report["padding_cost"]
    times = costs_of_report(report, "the report").times if measured else None
    waste = expected_waste(sizes, lengths, times, MARGIN)
    return {
        "lengths": lengths.label,
        "rows": round(waste.rows, 4),
        "time": None if waste.time is None else round(waste.time, 4),
        "eager": round(waste.eager, 4),
    }


def print_comparison(report: dict[str, Any]) -> None:
    """The report as a table and a few lines, to standard output."""
    from firstlight.cli.tables import print_rows

    print(f"lengths  {report['lengths']}")
    print(f"costs    {report['costs']}")
    print_rows("expected_waste", [_shown(row) for row in report["lists"]])
    print(
        "rows: rows computed / live rows - 1. time: ms / ms with a graph of every length - 1. "
        "Each batch runs by its bucket or eager, whichever is faster."
    )
    if report["multiple_of"] > 1:
        print(f"sizes are multiples of {report['multiple_of']}")
    if report["gap"] > 1e-9:
        print(f"no list within the budget is better by more than {report['gap']:.4%}")
    print("buckets  " + (",".join(map(str, report["buckets"])) or "none: eager is always faster"))


def _row(name: str, sizes: Sequence[int], lengths: Lengths, costs: Costs) -> dict[str, Any]:
    waste = expected_waste(sizes, lengths, costs.times)
    seconds = n_bytes = None
    if costs.capture is not None and sizes:
        seconds = costs.once_seconds + sum(costs.capture.seconds.at(size) for size in sizes)
        n_bytes = _bytes(sizes, costs.capture)
    return {
        "list": name,
        "buckets": len(sizes),
        "rows": waste.rows,
        "time": waste.time,
        "eager": waste.eager,
        "ms": waste.ms,
        "capture_s": seconds,
        "bytes": n_bytes,
    }


def _bytes(sizes: Sequence[int], capture: CaptureCosts) -> int:
    own = sum(capture.own_bytes.at(size) for size in sizes)
    return int(own + capture.shared_bytes.at(sizes[-1]))


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Shares as percentages."""
    shares = {key: _percent(row[key]) for key in ("rows", "time", "eager")}
    return {key: value for key, value in (row | shares).items() if value is not None}


def _percent(share: float | None) -> str | None:
    return None if share is None or not isfinite(share) else f"{share:.2%}"


def _sglang_up_to(longest: int) -> tuple[int, ...]:
    """SGLang's sizes up to the first that holds the longest length."""
    sizes = sglang_ladder(1 << max(longest - 1, 3).bit_length())
    return sizes[: bisect_left(sizes, longest) + 1]
