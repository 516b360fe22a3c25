"""From each round's figures to medians, ratios and whether a row is reached."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from benchmarks.peers.engines import OURS
from benchmarks.peers.judged import ROWS, JudgedRow
from benchmarks.peers.session import GroupResult

OWN_STEP: Final = "its decode step"
"""In ratios: ours over a decode step of ours in the same round."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One engine in one row: median, least and most of the rounds."""

    median: float
    least: float
    most: float
    rounds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Figure:
        """Of at least one round."""
        return cls(statistics.median(values), min(values), max(values), len(values))

    @property
    def spread(self) -> float:
        """Most over least."""
        return self.most / self.least


@dataclass(frozen=True, slots=True)
class RowResult:
    """A row.

    Attributes:
        figures: by engine.
        ratios: ours over each other engine's, or over :data:`OWN_STEP`: the median of the rounds'
            own ratios.
        against: the engine that the row is judged by; None if it or ours has no figure.
        reached: whether ``least`` is; None for a row without one, or without figures.
    """

    key: str
    title: str
    unit: str
    figures: Mapping[str, Figure]
    ratios: Mapping[str, float]
    least: float | None
    aim: float | None
    against: str | None
    reached: bool | None
    aim_reached: bool | None

    def as_dict(self) -> dict[str, object]:
        """JSON form; with figures' spread."""
        figures = {
            name: asdict(figure) | {"spread": round(figure.spread, 3)}
            for name, figure in self.figures.items()
        }
        return {**asdict(self), "figures": figures}


def row_results(result: GroupResult) -> list[RowResult]:
    """The rows of a group in their order, those without figures left out."""
    return [_row(key, result) for key in ROWS if any(result.figures.get(key, {}).values())]


def _row(key: str, result: GroupResult) -> RowResult:
    row, values = ROWS[key], result.figures[key]
    figures = {name: Figure.of(each) for name, each in values.items() if each}
    ratios = {
        name: round(median_ratio(values[OURS], values[name]), 3)
        for name in figures
        if name != OURS and OURS in figures
    }
    if row.step_of is not None and OURS in figures:
        rates = result.figures.get(row.step_of, {}).get(OURS, [])
        if rates:
            steps = (s * rate for s, rate in zip(values[OURS], rates, strict=True))
            ratios[OWN_STEP] = round(statistics.median(steps), 3)
    against = _against(row, figures)
    ratio = ratios.get(against) if against is not None else None
    return RowResult(
        key=key,
        title=row.title,
        unit="tok/s" if row.measure.more_is_better else "s",
        figures=figures,
        ratios=ratios,
        least=row.least,
        aim=row.aim,
        against=against,
        reached=_reached(row, ratio, row.least),
        aim_reached=_reached(row, ratio, row.aim),
    )


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Of the rounds' own ratios: a slow spell of the machine hits both sides of a round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def _against(row: JudgedRow, figures: Mapping[str, Figure]) -> str | None:
    if row.step_of is not None:
        return OWN_STEP
    if row.against is not None:
        return row.against if row.against in figures else None
    others = [name for name in figures if name != OURS]
    if not others:
        return None
    best = max if row.measure.more_is_better else min
    return best(others, key=lambda name: figures[name].median)


def _reached(row: JudgedRow, ratio: float | None, limit: float | None) -> bool | None:
    if ratio is None or limit is None:
        return None
    return ratio >= limit if row.measure.more_is_better else ratio <= limit
