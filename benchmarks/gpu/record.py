"""Puts a run on record: the file that README, the pages and ``inspect`` tell it from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.targets import Target
from benchmarks.machine import ROOT

RECORD = ROOT / "src/firstlight/graphs/backends/cuda/verified.json"
KEPT = 20
"""Runs that stay on record."""


def entry(report: Mapping[str, Any], targets: Sequence[Target]) -> dict[str, Any]:
    """One run as :class:`~firstlight.graphs.backends.cuda.GpuRun` reads it."""
    about, parts = report["about"], report["parts"]

    def named(*statuses: str) -> list[str]:
        return [name for name, part in parts.items() if part["status"] in statuses]

    return {
        "gpu": str(about["device"]).partition(",")[0],
        "torch": about["torch"],
        "transformers": about["transformers"],
        "commit": about["commit"],
        "date": about["date"],
        "passed": bool(report["passed"]),
        "failed": named("failed", "cut short"),
        "dropped": named("dropped"),
        "missed": [target.name for target in targets if target.verdict == "missed"],
        "reached": [target.name for target in targets if target.verdict == "reached"],
    }


def append(run: Mapping[str, Any], path: Path = RECORD) -> None:
    """Add a run; the oldest go when there are too many."""
    runs = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []
    kept = [*runs, dict(run)][-KEPT:]
    path.write_text(json.dumps({"runs": kept}, indent=2) + "\n", encoding="utf-8")
