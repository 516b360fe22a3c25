"""A run as tables and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.peers.agreement import Agreement
from benchmarks.peers.engines import OURS, Group
from benchmarks.peers.resources import (
    MEMORY_AIM,
    MEMORY_LEAST,
    START_AIM,
    START_LEAST,
    MemoryUse,
    memory_use,
    verdict,
)
from benchmarks.peers.results import Figure, RowResult, row_results
from benchmarks.peers.session import GroupResult

_MARKS = {True: "yes", False: "NO", None: ""}
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that a run found.

    Attributes:
        about: machine, threads, versions, commit, date.
        environments: bytes of each peer's environment.
    """

    about: Mapping[str, str | int]
    engines: tuple[str, ...]
    groups: Mapping[Group, GroupResult]
    agreement: Mapping[Group, Mapping[str, Agreement]]
    starts: Mapping[str, Figure | str] = field(default_factory=dict)
    environments: Mapping[str, int] = field(default_factory=dict)

    @property
    def rows(self) -> list[RowResult]:
        """Of all groups."""
        return [row for result in self.groups.values() for row in row_results(result)]

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return {
            "about": dict(self.about),
            "rows": [row.as_dict() for row in self.rows],
            "start": {
                name: asdict(found) if isinstance(found, Figure) else {"absent": found}
                for name, found in self.starts.items()
            },
            "verdicts": self._verdicts(),
            "groups": {group.value: self._group(group) for group in self.groups},
            "environment_bytes": dict(self.environments),
        }

    def _verdicts(self) -> dict[str, Any]:
        """Of what is measured once, for ours."""
        start = self.starts.get(OURS)
        text = self.groups.get(Group.TEXT)
        started = None if text is None else text.started.get(OURS)
        memory = None if started is None else memory_use(started)
        return {
            "start": verdict(
                start.median if isinstance(start, Figure) else None, START_LEAST, START_AIM
            ),
            "memory": verdict(None if memory is None else memory.ratio, MEMORY_LEAST, MEMORY_AIM),
        }

    def _group(self, group: Group) -> dict[str, Any]:
        result = self.groups[group]
        return {
            "absent": dict(result.absent),
            "failed": {turn: dict(engines) for turn, engines in result.failed.items() if engines},
            "engines": {name: asdict(started) for name, started in result.started.items()},
            "agreement": {
                name: asdict(found) | {"holds": found.holds}
                for name, found in self.agreement.get(group, {}).items()
            },
        }


def write(report: Report, path: Path | None) -> None:
    """Print the tables; write the JSON if a path is given."""
    console = Console(width=170)
    console.print(" · ".join(f"{key} {value}" for key, value in report.about.items()))
    if report.rows:
        console.print(_figures(report))
    if report.starts:
        console.print(_starts(report.starts))
    for group, result in report.groups.items():
        console.print(_engines(group, result, report.agreement.get(group, {})))
    if path is not None:
        path.write_text(json.dumps(report.as_dict(), indent=2) + "\n", encoding="utf-8")


def _table(title: str, *columns: str) -> Table:
    made = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        made.add_column(column, justify="right" if i else "left")
    return made


def _figures(report: Report) -> Table:
    title = "medians, spread (most over least) in brackets; ratio: firstlight over the one named"
    made = _table(
        title, "row", "", *report.engines, "ratio", "at least", "reached", "aim", "reached"
    )
    for row in report.rows:
        cells = [_figure(row.figures.get(name)) for name in report.engines]
        ratio = row.ratios.get(row.against or "")
        named = "" if ratio is None else f"{ratio:g} {row.against}"
        judged: Sequence[str] = (
            "" if row.least is None else f"{row.least:g}x",
            _MARKS[row.reached],
            "" if row.aim is None else f"{row.aim:g}x",
            _MARKS[row.aim_reached],
        )
        made.add_row(row.title, row.unit, *cells, named, *judged)
    return made


def _figure(figure: Figure | None) -> str:
    return "" if figure is None else f"{figure.median:.4g} ({figure.spread:.2f})"


def _starts(starts: Mapping[str, Figure | str]) -> Table:
    made = _table("start to ready, bundled model, caches warm", "engine", "s", "at most", "aim")
    for name, found in starts.items():
        limits = (f"{START_LEAST:g}", f"{START_AIM:g}") if name == OURS else ("", "")
        made.add_row(name, found if isinstance(found, str) else _figure(found), *limits)
    return made


def _engines(group: Group, result: GroupResult, agreement: Mapping[str, Agreement]) -> Table:
    title = (
        f"{group.value}: ids equal to transformers' before the first that differs; the worst "
        "logit below the best one in float32; memory in MiB, peak of resident and PSS"
    )
    made = _table(
        title, "engine", "weights", "ready s", "equal", "regret", "agrees", "peak", "PSS",
        f"over stated ({MEMORY_LEAST:g}, {MEMORY_AIM:g})", "idle", "versions",
    )  # fmt: skip
    for name, started in result.started.items():
        made.add_row(
            name,
            started.form,
            f"{started.ready_s:.1f}",
            *_agreement(agreement.get(name)),
            *_memory(memory_use(started)),
            f"{started.idle:.0%}",
            ", ".join(f"{key} {value}" for key, value in started.versions.items()),
        )
    for name, reason in result.absent.items():
        made.add_row(name, f"absent: {reason}")
    for turn, engines in result.failed.items():
        for name, reason in engines.items():
            made.add_row(name, f"no {turn}: {reason}")
    return made


def _agreement(found: Agreement | None) -> tuple[str, str, str]:
    if found is None:
        return "", "", ""
    regret = "" if found.regret is None else f"{found.regret:.3f}"
    equal = "" if found.equal is None else f"{found.equal}/{found.tokens}"
    return equal, regret, _MARKS[found.holds]


def _memory(found: MemoryUse | None) -> tuple[str, str, str]:
    if found is None:
        return "", "", ""
    ratio = "" if found.ratio is None else f"{found.ratio:.2f}"
    return f"{found.peak_rss / _MIB:.0f}", f"{found.pss / _MIB:.0f}", ratio
