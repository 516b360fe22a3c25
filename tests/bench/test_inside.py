"""What ran during a load, by the difference of two reports."""

from __future__ import annotations

from typing import Any

from firstlight.bench.inside import coverage, stages
from tests.bench.loads import came, failed


def report(
    batches: int, graph: int, live: int, padding: int, replays: dict[str, int], **eager: int
) -> dict[str, Any]:
    """A report of ``/v1/graphs`` about prefill."""
    reasons = [{"reason": name, "meaning": "", "batches": n} for name, n in eager.items()]
    phase: dict[str, Any] = {
        "batches": batches,
        "graph": graph,
        "share": None,
        "live_rows": live,
        "padding_rows": padding,
        "replays": replays,
        "reasons": reasons,
    }
    return {"coverage": {"prefill": phase}}


def test_only_what_came_between_two_reports_counts() -> None:
    before = report(10, 8, 1000, 100, {"64": 8}, no_bucket=2)
    after = report(30, 24, 4000, 1100, {"64": 8, "256": 16}, no_bucket=3, padding_cost=3)
    assert coverage(before, after) == [
        {
            "phase": "prefill",
            "batches": 20,
            "from_graphs": 0.8,
            "live_rows": 3000,
            "padding_rows": 1000,
            "padding": 0.25,
            "replays": {"256": 16},
            "eager": {"no_bucket": 1, "padding_cost": 3},
        }
    ]


def test_a_phase_in_which_nothing_ran_has_no_share() -> None:
    still = report(10, 8, 1000, 100, {"64": 8})
    (row,) = coverage(still, still)
    assert (row["batches"], row["from_graphs"], row["padding"]) == (0, None, None)


def test_stages_are_those_of_answers_in_their_order() -> None:
    timings = {"prefill_ms": 8.0, "queue_ms": 2.0, "fetch_ms": 0.0, "decode_ms_total": 30.0}
    slower = {name: 3 * value for name, value in timings.items()}
    found = stages([came(0.1, timings=timings), came(0.1, timings=slower), failed("cut off")])
    assert list(found) == ["queue", "prefill", "decode"]  # no picture was fetched
    assert (found["queue"]["mean"], found["prefill"]["max"]) == (4.0, 24.0)


def test_answers_without_timings_have_no_stages() -> None:
    assert stages([came(0.1)]) == {}
