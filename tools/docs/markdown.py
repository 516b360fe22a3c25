"""Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A markdown table; a bar within a cell is escaped."""
    head = list(header)
    lines = [head, ["---"] * len(head), *map(list, rows)]
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def pivot(corner: Iterable[str], cells: Mapping[tuple[tuple[str, ...], str], str]) -> str:
    """A table of cells by row (its leading cells, headed by ``corner``) and by column."""
    rows = dict.fromkeys(row for row, _ in cells)
    columns = list(dict.fromkeys(column for _, column in cells))
    return table(
        (*corner, *columns),
        ((*row, *(cells.get((row, column), "") for column in columns)) for row in rows),
    )
