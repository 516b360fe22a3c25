"""Rows to a table and to JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.row import Row

_MARKS = {True: "yes", False: "NO", None: ""}


def table(rows: Sequence[Row], about: dict[str, str | int]) -> Table:
    """Medians in ms, median ratios, and whether each limit is kept."""
    made = Table(title=" · ".join(f"{k} {v}" for k, v in about.items()), title_justify="left")
    for column in ("what", "firstlight ms", "against ms", "ratio", "at most", "kept", "note"):
        made.add_column(column, justify="left" if column in ("what", "note") else "right")
    for row in rows:
        cells = (row.ours, row.theirs, row.ratio, row.limit)
        numbers = ["" if value is None else f"{value:g}" for value in cells]
        if row.unit != "ms":
            numbers[0] += f" {row.unit}"
        made.add_row(row.name, *numbers, _MARKS[row.reached], row.note)
    return made


def write(rows: Sequence[Row], about: dict[str, str | int], path: Path | None) -> None:
    """Print the table; write the JSON if a path is given."""
    Console(width=160).print(table(rows, about))
    if path is not None:
        path.write_text(
            json.dumps({"about": about, "rows": [r.as_dict() for r in rows]}, indent=2) + "\n"
        )
