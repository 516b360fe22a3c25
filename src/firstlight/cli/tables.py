"""The report of ``firstlight inspect`` as tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def print_report(report: Mapping[str, Any]) -> None:
    """Print every part of ``report``, the value of ``LLM.inspect()``, to standard output."""
    # Where nobody looks at it, a table must not be cut at the width of a terminal.
    width = None if sys.stdout.isatty() else 160
    console = Console(highlight=False, markup=False, width=width)
    console.print(_facts(report))
    for title, rows in (
        ("Segments of a row", report["segments"]),
        ("Planes", report["planes"]),
        ("Slots", report["slots"]),
        *((_bucket_title(phase, b), b) for phase, b in report["buckets"].items()),
        ("Runs eager", report["eager"]),
    ):
        console.print(_table(title, rows) if rows else f"{title}: none")


def _facts(report: Mapping[str, Any]) -> Table:
    """Every entry that is one value: architecture, widths, backend, attention and the like."""
    table = Table(show_header=False, title="Model", title_justify="left")
    for name, value in report.items():
        if not isinstance(value, list | dict):
            table.add_row(name, _text(name, value))
    return table


def _columns(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """All keys of all rows, in the order in which they first appear."""
    return tuple(dict.fromkeys(key for row in rows for key in row))


def _table(title: str, rows: list[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    columns = _columns(rows)
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(column, row.get(column)) for column in columns))
    return table


def _bucket_title(phase: str, buckets: list[Mapping[str, Any]]) -> str:
    seconds = sum(bucket["seconds"] for bucket in buckets)
    size = sum(bucket["bytes"] for bucket in buckets)
    if not buckets:
        return f"Graphs for {phase}"
    return f"Graphs for {phase}: {len(buckets)} buckets, {_size(size)}, {seconds:.2f} s to capture"


def _text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name == "bytes" and isinstance(value, int):
        return _size(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(str(v) for v in value) + "]"
    return str(value)


def _size(n_bytes: int) -> str:
    value = float(n_bytes)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
