"""Measured figures, from the file that ``scripts/bench --json`` wrote."""

from __future__ import annotations

from typing import Any

from tools.docs.markdown import table
from tools.docs.measured import not_yet, read, where


def figures() -> str:
    """The benchmark's rows as a table, under the machine, commit and date they were taken on."""
    results = read("results.json")
    if results is None:
        return not_yet("scripts/bench", "results.json")
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
    header = ("what", "firstlight ms", "against ms", "ratio", "aim, at most", "note")
    return f"{where(results['about'])}\n\n{table(header, rows)}"


def _unit(row: dict[str, Any]) -> str:
    """Of a figure that is not in milliseconds, which the column's head says."""
    unit = row.get("unit", "ms")
    return "" if unit == "ms" else f" {unit}"
