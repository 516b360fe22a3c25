"""On which GPU this was last run: one data file, and everything that is said comes from it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from typing import Any

FILE = "verified.json"
NEVER = "not yet run on a GPU"


@dataclass(frozen=True, slots=True)
class GpuRun:
    """One run of the checks on a GPU; the file's ``runs`` are these, the last one last.

    Attributes:
        gpu: the device's name. torch, transformers: versions. commit: of firstlight.
        date: ISO 8601.
        passed: whether all checks passed.
        failed, dropped: parts of the check that failed, and that were not run.
        missed, reached: what was judged.
    """

    gpu: str
    torch: str
    commit: str
    date: str
    passed: bool
    transformers: str = ""
    failed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    reached: tuple[str, ...] = ()

    def __str__(self) -> str:
        verdict = "all checks passed" if self.passed else "not all checks passed"
        others = f", transformers {self.transformers}" if self.transformers else ""
        lists = (("failed", self.failed), ("not run", self.dropped), ("missed", self.missed))
        more = "".join(f"; {word}: {', '.join(names)}" for word, names in lists if names)
        return (
            f"last run on {self.gpu} with torch {self.torch}{others}, commit {self.commit}, "
            f"{self.date}: {verdict}{more}"
        )


def gpu_runs(text: str | None = None) -> tuple[GpuRun, ...]:
    """The runs that are on record.

    Args:
        text: of the data file; None is the package's own.
    """
    if text is None:
        text = resources.files(__package__ or "").joinpath(FILE).read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["runs"]
    return tuple(_run(values) for values in found)


def _run(values: dict[str, Any]) -> GpuRun:
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return GpuRun(**{**values, **lists})


def last_run(runs: tuple[GpuRun, ...] | None = None) -> str:
    """Where this was last run on a GPU, in one line; or that it was not."""
    runs = gpu_runs() if runs is None else runs
    return str(runs[-1]) if runs else NEVER
