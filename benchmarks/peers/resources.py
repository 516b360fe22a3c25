"""Start and memory: what is measured once, not in turns with requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.peers.client import PeerError
from benchmarks.peers.engines import ENGINES, Group
from benchmarks.peers.environments import InstallError
from benchmarks.peers.models import ModelError
from benchmarks.peers.plan import Plan
from benchmarks.peers.results import Figure
from benchmarks.peers.session import GroupResult, Session, Started

START_LEAST, START_AIM = 5.0, 2.0
"""Seconds from the start of the process to a model that can be asked, at most."""

MEMORY_LEAST, MEMORY_AIM = 1.2, 1.1
"""Peak memory over weights, KV and stated buffers, at most."""

_START_ROUNDS: Final = 3
_WEIGHTS: Final = ("packed weights",)
"""Kinds of stated memory that hold what the files hold."""


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of an engine's processes, after all rows of a group.

    Attributes:
        peak_rss, pss, anonymous: as :class:`benchmarks.peers.processes.Memory` has them.
        weights: of the files that it was given.
        stated: what the engine says it allocated beside weights; None if it does not say.
    """

    peak_rss: int
    pss: int
    anonymous: int
    weights: int
    stated: int | None

    @property
    def ratio(self) -> float | None:
        """Peak over weights, KV and stated buffers, each once."""
        return None if self.stated is None else self.peak_rss / (self.weights + self.stated)


def starts(plan: Plan, session: Session, say: Callable[[str], None]) -> dict[str, Figure | str]:
    """Seconds from process start to ready with the bundled model, caches warm; or why not.

    A first start that is not counted fills the caches; engines take turns.
    """
    seconds: dict[str, list[float]] = {name: [] for name in plan.engines}
    absent: dict[str, str] = {}
    for round_number in range(-1, min(plan.rounds, _START_ROUNDS)):
        for name in plan.engines:
            if name in absent:
                continue
            result = GroupResult(Group.START)
            try:
                session.start(ENGINES[name], Group.START, result).close()
            except (PeerError, InstallError, ModelError) as error:
                absent[name] = str(error)
                say(f"{name} is left out of {Group.START.value}: {error}")
                continue
            if round_number >= 0:
                seconds[name].append(result.started[name].ready_s)
    return {name: absent.get(name) or Figure.of(seconds[name]) for name in plan.engines}


def memory_use(started: Started) -> MemoryUse | None:
    """Of an engine that answered a group; None if it ended before."""
    memory = started.memory
    if memory is None:
        return None
    stated = _total(started.facts.get("bytes"))
    return MemoryUse(memory.peak_rss, memory.pss, memory.anonymous, started.weights, stated)


def verdict(measured: float | None, least: float, aim: float) -> dict[str, float | bool | None]:
    """A figure that should be small beside its limits; JSON-ready."""
    return {
        "figure": measured,
        "least": least,
        "aim": aim,
        "reached": None if measured is None else measured <= least,
        "aim_reached": None if measured is None else measured <= aim,
    }


def _total(stated: Any) -> int | None:
    """Of bytes by kind, but for weights, which the files are there for; None if none are stated."""
    if not isinstance(stated, Mapping):
        return None
    beside = {kind: n for kind, n in stated.items() if kind not in _WEIGHTS}
    return sum(n for n in beside.values() if isinstance(n, int))
