"""What batches and captures cost, from a model's report, a file of it, or plain numbers."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from firstlight.errors import ConfigError
from firstlight.graphs import BatchTimes, CostCurve
from firstlight.graphs.planner import CaptureCosts


@dataclass(frozen=True, slots=True)
class Costs:
    """What a plan is made from.

    Attributes:
        capture: None where it is not known.
        once_seconds: of capturing the first bucket, beyond what one of its size takes.
        source: where the numbers come from, for people.
    """

    times: BatchTimes
    capture: CaptureCosts | None
    once_seconds: float
    source: str


def plain_costs(fixed_ms: float, row_ms: float, eager_ms: float | None) -> Costs:
    """A replay of b rows takes ``fixed_ms + b * row_ms``; eager ``eager_ms`` more, or is barred.

    Raises:
        ConfigError: a number is negative, or all are zero.
    """
    if min(fixed_ms, row_ms, eager_ms or 0.0) < 0 or fixed_ms + row_ms <= 0:
        raise ConfigError(
            "--fixed-ms, --row-ms and --eager-ms must not be negative, and a replay must take time"
        )
    # Far ends, so that the line is a line at every length.
    ends = (0, 1 << 30)
    replay = CostCurve(tuple((n, fixed_ms + n * row_ms) for n in ends))
    eager = None
    if eager_ms is not None:
        eager = CostCurve(tuple((n, fixed_ms + eager_ms + n * row_ms) for n in ends))
    source = f"{fixed_ms:g} ms a batch and {row_ms:g} ms a row"
    source += ", eager not allowed" if eager_ms is None else f", eager {eager_ms:g} ms more"
    return Costs(BatchTimes(eager, replay), None, 0.0, source)


def costs_of_file(path: Path) -> Costs:
    """The costs in a file that ``firstlight inspect --json`` wrote.

    Raises:
        ConfigError: it cannot be read, or holds no measured costs.
    """
    try:
        report = json.loads(path.expanduser().read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the cost file {path} cannot be read: {error}") from error
    return costs_of_report(report, str(path))


def costs_of_report(report: Mapping[str, Any], source: str) -> Costs:
    """The prefill costs in a report of ``LLM.inspect()``.

    Raises:
        ConfigError: it holds no measured costs, or they are malformed.
    """
    try:
        measured = report["padding_cost"]["prefill"]
        eager, replay = _points(measured, "eager_ms"), _points(measured, "replay_ms")
        times = BatchTimes(CostCurve.through(eager) if eager else None, CostCurve.through(replay))
        capture, once = _capture_costs(report)
    except (KeyError, TypeError, ValueError, AttributeError, ConfigError) as error:
        raise ConfigError(
            f"{source} holds no measured prefill costs: padding_cost.prefill is a list of objects "
            f"with rows, replay_ms and, if eager is to be allowed, eager_ms ({error!r})"
        ) from error
    return Costs(times, capture, once, source)


def _points(measured: Sequence[Mapping[str, Any]], name: str) -> dict[int, float]:
    """Milliseconds by rows, where they were measured."""
    known = [entry for entry in measured if entry.get(name) is not None]
    return {int(entry["rows"]): float(entry[name]) for entry in known}


def _capture_costs(report: Mapping[str, Any]) -> tuple[CaptureCosts | None, float]:
    """Curves through the captured buckets, and the seconds that only the first capture takes.

    The largest bucket is captured first and pays for what later ones share: the choice of forms,
    constants, scratch memory. Two captured buckets are the fewest that tell shared from own.
    """
    buckets = [b for b in report.get("buckets", {}).get("prefill", ()) if b["seconds"]]
    if len(buckets) < 2:
        return None, 0.0
    *others, first = sorted(buckets, key=lambda b: b["size"])
    rows = int(first["size"])
    forms = statistics.median(_seconds(b, "choosing forms") for b in others)
    once = max(_seconds(first, "choosing forms") - forms, 0.0)
    seconds = {int(b["size"]): _seconds(b) for b in others} | {rows: _seconds(first) - once}
    own = CostCurve.through({int(b["size"]): float(_own_bytes(b)) for b in others})
    constants = max(_own_bytes(first) - own.at(rows), 0.0)
    scratch = first["bytes_by_kind"].get("scratch", 0)
    shared = CostCurve(((0, constants), (rows, constants + scratch)))
    return CaptureCosts(CostCurve.through(seconds), own, shared), once


def _seconds(bucket: Mapping[str, Any], part: str | None = None) -> float:
    parts: Mapping[str, float] = bucket["seconds_by_part"]
    return sum(parts.values()) if part is None else parts.get(part, 0.0)


def _own_bytes(bucket: Mapping[str, Any]) -> int:
    return sum(n for kind, n in bucket["bytes_by_kind"].items() if kind != "scratch")
