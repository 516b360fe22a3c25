"""The report of ``scripts/gpu-check`` as a short table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_SWEEPS = {
    "ttft_ms": "median time to first token, ms, by tokens",
    "step_ms": "median decode step, ms, by requests",
    "replay": "time of a replay over that of its kernels, and both in ms, by bucket",
    "encode_ms": "median encoding of one picture, ms, by its rows",
    "kernels_us": "mean of one call, us, by rows",
    "share": "share of prefill steps by graph",
}


def table(report: Mapping[str, Any]) -> str:
    """What ran, what it gave, and what was dropped."""
    about = report["about"]
    lines = [
        f"gpu-check on {about['device']}, torch {about['torch']}, transformers "
        f"{about['transformers']}, commit {about['commit']}, {about['date']}",
        "",
    ]
    for name, part in report["parts"].items():
        note = part.get("note") or part.get("why") or ""
        lines.append(f"{name:18} {part['status']:9} {part['seconds']:7.1f} s  {note}".rstrip())
        lines += [f"    {line}" for line in _details(part)]
    lines += ["", *report.get("targets", ())]
    verdict = "passed" if report["passed"] else "FAILED"
    return "\n".join([*lines, "", f"{verdict} in {report['seconds']:.0f} s"])


def _details(part: Mapping[str, Any]) -> Iterator[str]:
    for engine, row in part.get("engines", {}).items():
        yield f"{engine:10} " + ", ".join(f"{k} {_short(v)}" for k, v in row.items())
    for key, title in _SWEEPS.items():
        if key in part:
            yield title
            for size, row in part[key].items():
                yield f"{size:>6}  " + _row(row)


def _row(row: Any) -> str:
    if not isinstance(row, Mapping):
        return str(row)
    eager = row.get("eager")
    cells = []
    for name, value in row.items():
        ratio = ""
        if isinstance(value, float) and isinstance(eager, float) and name != "eager" and eager:
            ratio = f" ({value / eager:.2f}x)"
        cells.append(f"{name} {value}{ratio}")
    return "  ".join(cells)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return str(len(value)) if not value else f"{len(value)}: {str(value[0])[:200]}"
    return str(value)
