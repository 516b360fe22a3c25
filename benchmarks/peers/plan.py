"""What a run is asked to do."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.client import ROOT
from benchmarks.peers.engines import ENGINES, EngineSpec, Group
from benchmarks.peers.judged import ROWS, TURNS, Turn

START: Final = "start"
MEMORY: Final = "memory"
KEYS: Final = (*ROWS, START, MEMORY)
"""Everything that ``--only`` knows."""

_QUICK_TOKENS: Final = 17
_QUICK_WITHOUT: Final = ("text-2048",)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run.

    Attributes:
        engines: names, ours among them.
        only: keys of rows; empty for all.
        options: by engine, what its worker is given beside the usual.
        home: where environments, weights and logs are kept.
    """

    engines: tuple[str, ...]
    rounds: int
    threads: int
    home: Path
    only: frozenset[str] = frozenset()
    quick: bool = False
    dtype: str = "bfloat16"
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def cpus(self) -> list[int]:
        """The cores that every engine is pinned to.

        Raises:
            ValueError: fewer cores than threads.
        """
        found = sorted(os.sched_getaffinity(0))
        if len(found) < self.threads:
            raise ValueError(f"threads = {self.threads}; this process may use {len(found)} cores")
        return found[: self.threads]

    def wants(self, key: str) -> bool:
        """Whether a row is among those asked for."""
        return not self.only or key in self.only

    def turns(self, group: Group) -> dict[str, Turn]:
        """The turns of a group that give a row that is wanted; with --quick shortened ones."""
        found = {}
        for name, turn in TURNS.items():
            rows = [row for call in turn.calls for row in call.rows]
            # Memory is looked at when all that a user may do with text was done.
            wanted = any(row in self.only for row in rows) or (
                MEMORY in self.only and group is Group.TEXT and not self._too_long(name)
            )
            if turn.group is group and (wanted or self._by_default(name)):
                found[name] = self._shortened(turn) if self.quick else turn
        return found

    def _by_default(self, name: str) -> bool:
        return not self.only and not self._too_long(name)

    def _too_long(self, name: str) -> bool:
        return self.quick and name in _QUICK_WITHOUT

    @staticmethod
    def _shortened(turn: Turn) -> Turn:
        calls = (replace(c, max_tokens=min(c.max_tokens, _QUICK_TOKENS)) for c in turn.calls)
        return replace(turn, calls=tuple(calls))

    def environment(self, spec: EngineSpec) -> dict[str, str]:
        """Of an engine's process: threads that wait asleep, no network, one place for caches."""
        threads = str(self.threads)
        names = {"cpus": ",".join(map(str, self.cpus)), "home": str(self.home)}
        # firstlight itself is in no environment but the project's own.
        paths = [ROOT] if spec.packages else [ROOT, ROOT / "src"]
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return {
            **inherited,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            # A moment of spinning and then sleep, for GNU's and for Intel's OpenMP.
            "OMP_WAIT_POLICY": "passive",
            "GOMP_SPINCOUNT": "5000",
            "KMP_BLOCKTIME": "1",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            **{key: value.format(**names) for key, value in spec.environment.items()},
        }


def parse_options(given: Iterable[str]) -> dict[str, dict[str, Any]]:
    """``ENGINE.name=value`` by engine; a value is JSON, or else text.

    Raises:
        ValueError: not of this form, or an engine that does not exist.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in given:
        name, equals, value = text.partition("=")
        engine, dot, option = name.rpartition(".")
        if not (equals and dot and option) or engine not in ENGINES:
            raise ValueError(
                f"option {text!r}; ENGINE.name=value is expected, with an engine of "
                f"{', '.join(ENGINES)}"
            )
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        found.setdefault(engine, {})[option] = read
    return found


def check_names(what: str, given: Sequence[str], known: Iterable[str]) -> None:
    """Refuse a name that is not known.

    Raises:
        ValueError: naming it and those that are.
    """
    for name in given:
        if name not in set(known):
            raise ValueError(f"{what} {name!r} is unknown; there are {', '.join(known)}")
