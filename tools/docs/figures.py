"""Measured figures, from the file that ``scripts/bench --json`` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tools.docs.markdown import table

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results.json"


def figures() -> str:
    """The benchmark's rows as a table, under the machine, commit and date they were taken on."""
    if not RESULTS.is_file():
        return (
            "Not measured yet. `scripts/bench --json benchmarks/results.json` measures, and "
            "`scripts/docs` then fills this in."
        )
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    about = results["about"]
    rows = [
        (
            row["name"],
            f"{row['ours']:g}" + _unit(row),
            "" if row["theirs"] is None else f"{row['theirs']:g}",
            "" if row["ratio"] is None else f"{row['ratio']:g}",
            "" if row["limit"] is None else f"{row['limit']:g}",
            row["note"],
        )
        for row in results["rows"]
    ]
    where = (
        f"{about['cpu']}, {about['threads']} threads, {about['capability']}; torch "
        f"{about['torch']}, transformers {about['transformers']}; commit {about['commit']}, "
        f"{about['date']}."
    )
    header = ("what", "firstlight ms", "against ms", "ratio", "aim, at most", "note")
    return f"{where}\n\n{table(header, rows)}"


def _unit(row: dict[str, Any]) -> str:
    """Of a figure that is not in milliseconds, which the column's head says."""
    unit = row.get("unit", "ms")
    return "" if unit == "ms" else f" {unit}"
