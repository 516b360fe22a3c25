"""The rows as bars in an SVG file, without a library."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from benchmarks.peers.engines import OURS
from benchmarks.peers.results import Figure, RowResult

_COLUMNS: Final = 3
_WIDTH, _BAR, _HEAD, _FOOT = 380, 20, 40, 14
_NAMES: Final = 110
_NUMBERS: Final = 62
_OURS, _OTHERS = "#1b6ca8", "#b9c4cc"


def bars(rows: Sequence[RowResult], caption: str, path: Path) -> None:
    """Write one panel for each row: a bar for each engine, a thin line from least to most."""
    path.write_text(page(rows, caption), encoding="utf-8")


def page(rows: Sequence[RowResult], caption: str) -> str:
    """The SVG document."""
    deepest = max((len(row.figures) for row in rows), default=0)
    height = _HEAD + deepest * _BAR + _FOOT
    lines = -(-len(rows) // _COLUMNS)
    whole = lines * height + 24
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH * _COLUMNS} {whole}" '
        f'width="{_WIDTH * _COLUMNS}" height="{whole}" font-family="sans-serif" font-size="11">',
        f'<rect width="{_WIDTH * _COLUMNS}" height="{whole}" fill="white"/>',
    ]
    for i, row in enumerate(rows):
        x, y = i % _COLUMNS * _WIDTH, i // _COLUMNS * height
        made += [f'<g transform="translate({x},{y})">', *_panel(row), "</g>"]
    made += [_text(12, whole - 8, caption, colour="#777"), "</svg>"]
    return "\n".join(made) + "\n"


def _panel(row: RowResult) -> list[str]:
    better = "more is better" if row.unit == "tok/s" else "less is better"
    made = [
        _text(12, 18, row.title, weight="bold"),
        _text(12, 32, f"{row.unit}, {better}", colour="#777"),
    ]
    top = max(figure.most for figure in row.figures.values())
    for i, (name, figure) in enumerate(row.figures.items()):
        made += _bar(name, figure, top, _HEAD + i * _BAR)
    return made


def _bar(name: str, figure: Figure, top: float, y: int) -> list[str]:
    scale = (_WIDTH - _NAMES - _NUMBERS) / top
    end, colour = _NAMES + figure.median * scale, _OURS if name == OURS else _OTHERS
    low, high, middle = _NAMES + figure.least * scale, _NAMES + figure.most * scale, y + 8
    return [
        _text(_NAMES - 6, y + 12, name, anchor="end"),
        f'<rect x="{_NAMES}" y="{y + 2}" width="{end - _NAMES:.1f}" height="12" fill="{colour}"/>',
        f'<line x1="{low:.1f}" y1="{middle}" x2="{high:.1f}" y2="{middle}" stroke="#333"/>',
        _text(max(end, high) + 5, y + 12, f"{figure.median:.3g}"),
    ]


def _text(
    x: float,
    y: float,
    content: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = "#333",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{colour}">{escape(content)}</text>'
    )
