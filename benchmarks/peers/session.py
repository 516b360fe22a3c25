"""One group of rows: its engines are loaded, take turns round by round, and are closed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.peers.client import PeerError, PeerGone, Worker
from benchmarks.peers.engines import ENGINES, REFERENCE, EngineSpec, Group
from benchmarks.peers.environments import Environments, InstallError
from benchmarks.peers.judged import CONTEXT, ROWS, Turn
from benchmarks.peers.models import ModelError, Models
from benchmarks.peers.plan import Plan
from benchmarks.peers.processes import Memory
from benchmarks.peers.prompts import PromptMaker
from benchmarks.peers.workers.loop import Load, Request

_LOAD_SECONDS = 2400
"""A first start compiles: vLLM took a quarter of an hour and more on two busy cores."""


@dataclass(slots=True)
class Started:
    """An engine that was loaded.

    Attributes:
        ready_s: from the start of its process, in seconds; the first time with a cold cache.
        weights: bytes of the files that it was given.
        idle: share of a core that it used while others had their turn.
    """

    ready_s: float
    form: str
    weights: int
    versions: dict[str, str]
    facts: dict[str, Any] = field(default_factory=dict)
    memory: Memory | None = None
    idle: float = 0.0


@dataclass(frozen=True, slots=True)
class Said:
    """What the engines answered to the same request in the last round."""

    request: Request
    ids: dict[str, list[int]]


@dataclass(slots=True)
class GroupResult:
    """What came of a group.

    Attributes:
        figures: row -> engine -> a number for each round.
        said: one entry for each request of the last round.
        absent: engine -> why it has no figures.
        failed: turn -> engine -> what it said when it could not do what the turn asks for.
    """

    group: Group
    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    said: dict[str, Said] = field(default_factory=dict)
    started: dict[str, Started] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)


class Session:
    """Runs a group."""

    def __init__(
        self,
        plan: Plan,
        environments: Environments,
        models: Models,
        say: Callable[[str], None] = print,
    ) -> None:
        self._plan, self._environments, self._models, self._say = plan, environments, models, say

    def run(self, group: Group, prompts: PromptMaker) -> GroupResult:
        """All turns that are wanted, one round of warming up before those that count."""
        result = GroupResult(group)
        workers: dict[str, Worker] = {}
        try:
            for name in self._plan.engines:
                with self._or_absent(name, result, workers):
                    workers[name] = self.start(ENGINES[name], group, result)
            for round_number in range(-1, self._plan.rounds):
                self._round(round_number, workers, prompts, result)
            for name, worker in list(workers.items()):
                with self._or_absent(name, result, workers):
                    result.started[name].facts = worker.facts()
                    result.started[name].memory = worker.memory()
        finally:
            for worker in workers.values():
                worker.close()
        self._drop_incomplete(result)
        return result

    def _drop_incomplete(self, result: GroupResult) -> None:
        """Take out the figures of engines that did not do all rounds of a row."""
        for turn, spec in self._plan.turns(result.group).items():
            gone = {*result.absent, *result.failed.get(turn, {})}
            for row in (row for call in spec.calls for row in call.rows):
                for name in gone:
                    result.figures.get(row, {}).pop(name, None)

    def start(self, spec: EngineSpec, group: Group, result: GroupResult) -> Worker:
        """A process with the group's weights loaded.

        Raises:
            PeerError: it takes no part in the group, or cannot load.
            InstallError, ModelError: its environment or weights cannot be made.
        """
        if group not in spec.forms:
            raise PeerError(spec.lacks[group])
        python = self._environments.python(spec)
        path = self._models.path(spec.forms[group], group)
        self._say(f"starting {spec.name} with {spec.forms[group].value} ...")
        began = time.perf_counter()
        worker, told = self._loaded(spec, group, python, path, self._plan.dtype)
        ready = time.perf_counter() - began
        files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
        weights = sum(p.stat().st_size for p in files)
        result.started[spec.name] = Started(ready, spec.forms[group], weights, told["versions"])
        self._say(f"{spec.name} is ready after {ready:.1f} s")
        return worker

    def reference(self, group: Group) -> Worker:
        """transformers with a group's weights in float32, to judge answers by.

        Raises:
            PeerError: it cannot load.
        """
        spec = ENGINES[REFERENCE]
        text = Group.VISION if group is Group.VISION else Group.TEXT
        path = self._models.path(spec.forms[text], text)
        return self._loaded(spec, group, self._environments.python(spec), path, "float32")[0]

    def _loaded(
        self, spec: EngineSpec, group: Group, python: Path, path: Path, dtype: str
    ) -> tuple[Worker, dict[str, Any]]:
        plan = self._plan
        load = Load(
            model=str(path),
            dtype=dtype,
            threads=plan.threads,
            context=CONTEXT,
            vision=group is Group.VISION,
            options={**spec.options.get(group, {}), **plan.options.get(spec.name, {})},
        )
        worker = Worker(
            python,
            spec.worker,
            log=plan.home / "logs" / f"{spec.name}-{group.value}-{dtype}.log",
            environment=plan.environment(spec),
            cpus=plan.cpus,
        )
        try:
            return worker, worker.load(load, _LOAD_SECONDS)
        except PeerError:
            worker.close()
            raise

    def _round(
        self,
        number: int,
        workers: dict[str, Worker],
        prompts: PromptMaker,
        result: GroupResult,
    ) -> None:
        for name, turn in self._plan.turns(result.group).items():
            requests = [prompts.requests(call, name, number) for call in turn.calls]
            # Whoever comes first finds the machine as the others left it: so in turns, too.
            order = list(workers) if number % 2 else list(reversed(workers))
            failed = result.failed.setdefault(name, {})
            for engine in (each for each in order if each not in failed):
                with self._or_absent(engine, result, workers), _idle(engine, workers, result):
                    try:
                        self._turn(number, name, turn, requests, engine, workers, result)
                    except PeerGone:
                        raise
                    except PeerError as error:
                        failed[engine] = str(error)
                        self._say(f"{engine} cannot do {name}: {error}")

    def _turn(
        self,
        number: int,
        name: str,
        turn: Turn,
        requests: list[list[Request]],
        engine: str,
        workers: dict[str, Worker],
        result: GroupResult,
    ) -> None:
        for i, (call, asked) in enumerate(zip(turn.calls, requests, strict=True)):
            answer = workers[engine].run(asked, call.max_tokens)
            for row in call.rows:
                figures = result.figures.setdefault(row, {}).setdefault(engine, [])
                if number >= 0:
                    figures.append(ROWS[row].measure.of(answer))
            for j, (request, ids) in enumerate(zip(asked, answer.ids, strict=True)):
                key = f"{name}.{i}.{j}"
                if key not in result.said or result.said[key].request != request:
                    result.said[key] = Said(request, {})
                result.said[key].ids[engine] = ids

    @contextmanager
    def _or_absent(
        self, name: str, result: GroupResult, workers: dict[str, Worker]
    ) -> Iterator[None]:
        """An engine that fails is left out with its reason, and the others go on."""
        try:
            yield
        except (PeerError, InstallError, ModelError) as error:
            result.absent[name] = str(error)
            self._say(f"{name} is left out of {result.group.value}: {error}")
            if (worker := workers.pop(name, None)) is not None:
                worker.close()


@contextmanager
def _idle(engine: str, workers: dict[str, Worker], result: GroupResult) -> Iterator[None]:
    """Note the most that any other engine computed while it was not its turn."""
    others = {name: worker.cpu_seconds() for name, worker in workers.items() if name != engine}
    began = time.perf_counter()
    yield
    seconds = time.perf_counter() - began
    for name, before in others.items():
        if name in workers:
            share = (workers[name].cpu_seconds() - before) / seconds
            result.started[name].idle = max(result.started[name].idle, round(share, 3))
