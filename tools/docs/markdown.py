"""Markdown."""

from __future__ import annotations

from collections.abc import Iterable


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A markdown table; a bar within a cell is escaped."""
    head = list(header)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )
