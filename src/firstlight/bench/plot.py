"""Line charts as SVG, without a library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

_COLOURS = ("#1b6ca8", "#c8553d", "#5c8001", "#7b3f9d")
_WIDTH, _HEIGHT = 420, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 22, 46, 44
_LABEL = 34
"""Pixels that a number on the x axis has to itself."""


@dataclass(frozen=True, slots=True)
class Chart:
    """Named lines; both axes start at zero, so that what grows evenly is a straight line.

    Attributes:
        x, y: what the axes are of.
        dots: whether each point is marked and has its number on the x axis; a line of many points
            has round numbers there instead.
    """

    title: str
    x: str
    y: str
    lines: Mapping[str, Points]
    dots: bool = True

    def _tops(self) -> tuple[float, float]:
        """Where the two axes end."""
        both = list(
            zip(*(point for points in self.lines.values() for point in points), strict=True)
        )
        across, up = (max(values, default=0.0) or 1.0 for values in (both or [(), ()]))
        step = 10 ** math.floor(math.log10(up))
        return across, math.ceil(up / step) * step

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Pixels of a point."""
        across, up = self._tops()
        return (
            round(_LEFT + x / across * (_WIDTH - _LEFT - _RIGHT), 1),
            round(_HEIGHT - _BOTTOM - y / up * (_HEIGHT - _TOP - _BOTTOM), 1),
        )

    def svg(self) -> list[str]:
        """The elements of the chart, the upper left corner at 0, 0."""
        made = [
            _text(_LEFT, 16, self.title, weight="bold"),
            _text((_LEFT + _WIDTH) / 2, _HEIGHT - 8, self.x, anchor="middle"),
            _text(_LEFT - 40, _TOP - 12, self.y),
        ]
        made += self._axes()
        for i, (name, points) in enumerate(self.lines.items()):
            colour = _COLOURS[i % len(_COLOURS)]
            at = [self.place(x, y) for x, y in points]
            path = " ".join(f"{x},{y}" for x, y in at)
            made.append(f'<polyline points="{path}" fill="none" stroke="{colour}"/>')
            if self.dots:
                made += [f'<circle cx="{x}" cy="{y}" r="2.5" fill="{colour}"/>' for x, y in at]
            made.append(_text(_LEFT + 8, _TOP + 12 + 15 * i, name, colour=colour))
        return made

    def _axes(self) -> list[str]:
        _, up = self._tops()
        made = []
        for y in (0.0, up / 2, up):
            left, at = self.place(0, y)
            end = _WIDTH - _RIGHT
            made.append(f'<line x1="{left}" y1="{at}" x2="{end}" y2="{at}" stroke="#ddd"/>')
            made.append(_text(left - 6, at + 4, f"{y:g}", anchor="end"))
        last = -math.inf
        for x in self._marks():
            across = self.place(x, 0)[0]
            if across - last >= _LABEL:
                last = across
                made.append(_text(across, _HEIGHT - _BOTTOM + 16, f"{x:g}", anchor="middle"))
        return made

    def _marks(self) -> list[float]:
        """Where the x axis has numbers."""
        if self.dots:
            return sorted({x for points in self.lines.values() for x, _ in points})
        across = self._tops()[0]
        rough = across / 5
        power = 10 ** math.floor(math.log10(rough))
        step = next(n * power for n in (1, 2, 5, 10) if n * power >= rough)
        return [round(i * step, 9) for i in range(math.floor(across / step) + 1)]


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
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="{colour}">{escape(content)}</text>'
    )


def page(charts: Sequence[Chart], caption: str) -> str:
    """An SVG document with the charts side by side and one line below them."""
    width, height = _WIDTH * len(charts), _HEIGHT + 24
    made = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    ]
    for i, chart in enumerate(charts):
        made += [f'<g transform="translate({i * _WIDTH},0)">', *chart.svg(), "</g>"]
    made += [_text(_LEFT, height - 8, caption, colour="#777"), "</svg>"]
    return "\n".join(made) + "\n"
