"""A measured load as one JSON value."""

from __future__ import annotations

import datetime
import platform
from typing import Any

from firstlight import __version__
from firstlight.bench.inside import coverage, stages
from firstlight.bench.run import Measured
from firstlight.bench.summary import errors, goodput, latencies, rates, spread, totals


def report(measured: Measured) -> dict[str, Any]:
    """All figures, and each request's own; see the page on benchmarks for what they mean."""
    answers, workload = measured.answers, measured.workload
    load = measured.settings.describe()
    made: dict[str, Any] = {
        "about": {
            "server": measured.server,
            "model": measured.model,
            "firstlight": measured.version or None,
            "load": "closed" if measured.settings.request_rate is None else "open",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "client": f"firstlight {__version__} on {platform.machine()}",
        },
        "settings": load,
        "totals": totals(answers),
        "rates": rates(answers),
        "latency_ms": latencies(answers),
        "goodput": goodput(answers, measured.settings.slo),
        "errors": errors(answers),
        "client": {
            "busy": round(measured.busy, 3),
            "late_ms": spread(a.sent - a.due for a in answers),
        },
    }
    if workload.pictures:
        made["pictures"] = {"sent": workload.pictures, "distinct": workload.distinct}
        made["pictures"]["repeated"] = round(1 - workload.distinct / workload.pictures, 4)
    if measured.graphs is not None:
        made["graphs"] = coverage(*measured.graphs)
        made["stages_ms"] = stages(answers)
    made["requests"] = [answer.describe(measured.start) for answer in answers]
    return made
