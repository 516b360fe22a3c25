"""What each replaced part brings, from the file that ``scripts/bench fusing --json`` wrote."""

from __future__ import annotations

from itertools import groupby

from tools.docs.markdown import pivot
from tools.docs.measured import not_yet, read, where


def fusing() -> str:
    """For each model and group a table: parts by batches, time and its ratio to the first row's."""
    results = read("fusing.json")
    if results is None:
        return not_yet("scripts/bench fusing", "fusing.json")
    parts = [where(results["about"])]
    for (model, group), rows in groupby(results["rows"], lambda r: (r["model"], r["group"])):
        cells: dict[tuple[tuple[str, ...], str], str] = {
            ((row["what"],), f"{row['batch']}: ms (ratio)"): f"{row['ms']:.3g} ({row['ratio']:.2f})"
            for row in rows
        }
        parts += [f"{model}, {group}:", pivot([""], cells)]
    return "\n\n".join(parts)
