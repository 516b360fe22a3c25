"""The report of ``/v1/graphs``: what was captured, what ran from it, and what did not, and why."""

from __future__ import annotations

from typing import Any

from firstlight.core.reason import Phase, Reason
from firstlight.engine.build import Parts
from firstlight.engine.inspection import describe

_KEPT = (
    "model",
    "architecture",
    "input_embeds_hidden_size",
    "segments",
    "backend",
    "gpu",
    "buckets",
    "eager",
    "encoder_graphs",
    "waste",
    "padding_cost",
    "bytes",
    "seconds",
    "unread_inputs",
)


def graphs_report(parts: Parts) -> dict[str, Any]:
    """As a JSON value; call it where the engine stands still."""
    described = describe(parts)
    report = {name: described[name] for name in _KEPT}
    report["coverage"] = {phase.value: _coverage(parts, phase) for phase in Phase}
    return report


def _coverage(parts: Parts, phase: Phase) -> dict[str, Any]:
    """How the batches of a phase ran since the start."""
    counter = parts.runners[phase].counter
    reasons = {r: n for (p, r), n in counter.counts().items() if p is phase and n}
    total = sum(reasons.values())
    captured = reasons.get(Reason.CAPTURED, 0)
    rows = counter.rows()[phase]
    return {
        "batches": total,
        "graph": captured,
        "share": round(captured / total, 4) if total else None,
        "live_rows": rows.live,
        "padding_rows": rows.padding,
        "replays": {str(b): n for (p, b), n in sorted(counter.replays().items()) if p is phase},
        "reasons": [
            {"reason": reason.value, "meaning": reason.meaning, "batches": n}
            for reason, n in reasons.items()
            if reason is not Reason.CAPTURED
        ],
    }
