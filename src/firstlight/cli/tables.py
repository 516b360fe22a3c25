"""The report of ``firstlight inspect`` as tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from rich.console import Console
from rich.table import Table

from firstlight.cli.faults import faults

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_Rows = Sequence[Mapping[str, Any]]


def print_report(report: Mapping[str, Any]) -> None:
    """Print every part of ``report``, the value of ``LLM.inspect()``, to standard output.

    Faults come first, then what runs eager. A value becomes a line of the next table, a group of
    values one of its own, and so does a list of things; what is listed per phase is one table with
    the phase in front.
    """
    console = _console()
    _print_rows(console, "faults", faults(report))
    report = dict(report)
    if _is_per_phase(eager := report.pop("eager", None)):
        _print_rows(console, "eager", _by_phase(eager))
    values = {name: part for name, part in report.items() if not isinstance(part, Mapping)}
    _print(console, "Model", _facts(values))
    for name, part in report.items():
        if _is_per_phase(part):
            _print_rows(console, name, _by_phase(part))
        elif isinstance(part, Mapping):
            _print(console, _title(name), _facts(part))
            for inner, rows in part.items():
                if _is_rows(rows):
                    _print_rows(console, f"{name}: {inner}", rows)
        elif isinstance(part, list):
            _print_rows(console, name, _sums(part) if name == "bytes" else part)


def _sums(rows: _Rows) -> _Rows:
    """Bytes by kind: those of each bucket are in the table of graphs, and in the JSON."""
    return [row for row in rows if row["bucket"] is None]


def print_rows(name: str, rows: _Rows) -> None:
    """Print one table to standard output, with a column for each key of the rows."""
    _print_rows(_console(), name, rows)


def print_facts(name: str, part: Mapping[str, Any]) -> None:
    """Print the entries of ``part`` that are one value as a table of two columns."""
    _print(_console(), _title(name), _facts(part))


def _console() -> Console:
    # Where nobody looks at it, a table must not be cut at the width of a terminal.
    width = None if sys.stdout.isatty() else 160
    return Console(highlight=False, markup=False, width=width)


def _is_rows(part: object) -> bool:
    return isinstance(part, list) and bool(part) and all(isinstance(r, Mapping) for r in part)


def _is_per_phase(part: object) -> TypeGuard[Mapping[str, _Rows]]:
    return isinstance(part, Mapping) and all(isinstance(rows, list) for rows in part.values())


def _by_phase(part: Mapping[str, _Rows]) -> list[dict[str, Any]]:
    return [{"phase": phase} | dict(row) for phase, rows in part.items() for row in rows]


def _print_rows(console: Console, name: str, rows: _Rows) -> None:
    if not rows:
        console.print(f"{_title(name)}: none\n")
        return
    total = _totals(rows) if name == "buckets" else ""
    _print(console, _title(name) + total, _table(rows))


def _print(console: Console, title: str, table: Table) -> None:
    # Not as the table's own title, which is folded to the width of a narrow table.
    console.print(title)
    console.print(table, end="\n\n")


def _title(name: str) -> str:
    titles = {"segments": "Segments of a row", "buckets": "Graphs", "eager": "Runs eager"}
    return titles.get(name, name.replace("_", " ").capitalize())


def _facts(part: Mapping[str, Any]) -> Table:
    """Every entry that is one value, and counts by name, such as ``{"Attention": 4}``."""
    table = Table(show_header=False)
    for name, value in part.items():
        if isinstance(value, dict) and all(isinstance(v, int | str) for v in value.values()):
            counts = ", ".join(f"{key} {count}" for key, count in value.items())
            table.add_row(name, counts or "none")
        elif not isinstance(value, list | dict):
            table.add_row(name, _text(name, value))
    return table


def _columns(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """All keys of all rows, in the order in which they first appear."""
    return tuple(dict.fromkeys(key for row in rows for key in row))


def _table(rows: _Rows) -> Table:
    table = Table()
    columns = [c for c in _columns(rows) if any(row.get(c) not in (None, "", {}) for row in rows)]
    for column in columns:
        numbers = all(isinstance(row.get(column), int | float) for row in rows)
        table.add_column(column, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_text(column, row.get(column)) for column in columns))
    return table


def _totals(graphs: _Rows) -> str:
    seconds = sum(graph["seconds"] for graph in graphs)
    size = sum(graph["bytes"] for graph in graphs)
    return f": {len(graphs)}, {_size(size)} of their own, {seconds:.2f} s to capture"


def _text(name: str, value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name.endswith("bytes") and isinstance(value, int):
        return _size(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(name.partition('_')[0], v)}" for key, v in value.items())
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
