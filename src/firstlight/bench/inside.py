"""What firstlight says of a load from inside: graphs, padding, stages of each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstlight.bench.answer import Answer
from firstlight.bench.summary import spread

STAGES = {
    "queue": "queue_ms",
    "fetch": "fetch_ms",
    "image_decode": "decode_ms",
    "process": "process_ms",
    "encode": "encode_ms",
    "prefill": "prefill_ms",
    "ttft": "ttft_ms",
    "decode": "decode_ms_total",
}
"""In the order in which a request passes them, with their names in an answer's timings."""


def coverage(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[dict[str, Any]]:
    """How batches ran between two reports of ``/v1/graphs``, a row a phase.

    What other clients ask meanwhile is in it: the server counts batches, not whose they are.
    """
    return [
        _phase(phase, before["coverage"].get(phase, {}), now)
        for phase, now in after["coverage"].items()
    ]


def _phase(phase: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    names = ("batches", "graph", "live_rows", "padding_rows")
    grown = {name: int(after[name]) - int(before.get(name, 0)) for name in names}
    batches, rows = grown["batches"], grown["live_rows"] + grown["padding_rows"]
    eager = _grown(_reasons(before), _reasons(after))
    return {
        "phase": phase,
        "batches": batches,
        "from_graphs": round(grown["graph"] / batches, 4) if batches else None,
        "live_rows": grown["live_rows"],
        "padding_rows": grown["padding_rows"],
        "padding": round(grown["padding_rows"] / rows, 4) if rows else None,
        "replays": _grown(before.get("replays", {}), after["replays"]),
        "eager": eager,
    }


def _reasons(report: Mapping[str, Any]) -> dict[str, int]:
    return {entry["reason"]: entry["batches"] for entry in report.get("reasons", ())}


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    grown = {name: n - before.get(name, 0) for name, n in after.items()}
    return {name: n for name, n in grown.items() if n}


def stages(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    """The spread of each stage over the answers with timings, in milliseconds."""
    timings = [a.timings for a in answers if a.error is None and a.timings]
    found = {}
    for stage, name in STAGES.items():
        times = spread(t[name] / 1e3 for t in timings if name in t)
        # A stage that nothing went through, as pictures in a load without, says nothing.
        if times is not None and times["max"] > 0:
            found[stage] = times
    return found
