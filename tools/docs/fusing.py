"""What each replaced part brings, from the file that ``scripts/bench fusing --json`` wrote."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from tools.docs.markdown import table
from tools.docs.measured import not_yet, read, where

Row = dict[str, Any]


def fusing() -> str:
    """For each model and group a table: parts by batches, time and its ratio to the first row's."""
    results = read("fusing.json")
    if results is None:
        return not_yet("scripts/bench fusing", "fusing.json")
    parts = [where(results["about"])]
    for (model, group), rows in groupby(results["rows"], lambda r: (r["model"], r["group"])):
        parts += [f"{model}, {group}:", _pivot(list(rows))]
    return "\n\n".join(parts)


def _pivot(rows: list[Row]) -> str:
    batches = list(dict.fromkeys(row["batch"] for row in rows))
    parts = list(dict.fromkeys(row["what"] for row in rows))
    cells = {(row["what"], row["batch"]): f"{row['ms']:.3g} ({row['ratio']:.2f})" for row in rows}
    header = ("", *(f"{batch}: ms (ratio)" for batch in batches))
    return table(header, ((part, *(cells[part, batch] for batch in batches)) for part in parts))
