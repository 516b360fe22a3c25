"""The results as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TextIO

from benchmarks.machine import about
from tools.load.checks import Check
from tools.load.tally import Tally, Trouble

_SHOWN = 20


@dataclass(slots=True)
class Report:
    """Everything that was found, in order.

    Attributes:
        given: what the test was told.
        figures: what is measured and not judged, by name.
        curve: seconds and resident bytes, a point every half minute.
    """

    given: Mapping[str, object]
    checks: list[Check] = field(default_factory=list)
    figures: dict[str, object] = field(default_factory=dict)
    troubles: list[Trouble] = field(default_factory=list)
    curve: list[tuple[float, int]] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every claim does."""
        return all(check.holds for check in self.checks)

    def add(self, checks: Iterable[Check]) -> None:
        """More claims."""
        self.checks += checks

    def measured(self, tally: Tally, seconds: float, most_apart: float) -> None:
        """The load's own figures."""
        requests = sum(tally.fine.values()) + len(tally.troubles)
        self.figures |= {
            "seconds of load": round(seconds, 1),
            "requests": requests,
            "requests a second": round(requests / seconds, 1),
            **tally.fine,
            **{f"answers of kind {kind}": n for kind, n in sorted(tally.kinds.items())},
            "seconds to an answer, median": round(tally.percentile(0.5), 3),
            "seconds to an answer, 99 of 100": round(tally.percentile(0.99), 3),
            "log probabilities apart, at most": float(f"{most_apart:.2g}"),
        }
        self.troubles += tally.troubles

    def show(self, out: TextIO) -> None:
        """As text."""
        machine = about()
        where = ", ".join(f"{machine[name]}" for name in ("cpu", "torch", "commit", "date"))
        print(f"\n{where}; {machine['threads']} threads\n", file=out)
        for name, value in self.figures.items():
            print(f"      {name:<44} {value}", file=out)
        print(file=out)
        for check in self.checks:
            mark = "ok  " if check.holds else "FAIL"
            accepted = f"  ({check.accepted})" if check.accepted else ""
            print(f"{mark}  {check.name:<44} {check.found}{accepted}", file=out)
        for trouble in self.troubles[:_SHOWN]:
            print(f"      {trouble}", file=out)

    def write(self, path: Path) -> None:
        """As JSON."""
        value = {
            "machine": about(),
            "given": dict(self.given),
            "figures": self.figures,
            "resident bytes": self.curve,
            "checks": [asdict(check) for check in self.checks],
            "troubles": [asdict(trouble) for trouble in self.troubles[: 10 * _SHOWN]],
        }
        path.write_text(json.dumps(value, indent=1, default=str) + "\n", encoding="utf-8")
