"""Measures a server under a load, from its first question to its last answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from firstlight.bench.answer import Answer
from firstlight.bench.arrivals import arrivals
from firstlight.bench.ask import ask
from firstlight.bench.loops import Ask, closed_loop, open_loop
from firstlight.bench.settings import LoadSettings
from firstlight.bench.target import Target, graphs_of, open_client
from firstlight.bench.workload import Prompt, Workload, make_workload
from firstlight.errors import ConfigError

Told = Callable[[str, int, int], None]
"""Hears how far it is: what is being done, how much of it, of how much."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A load and what became of it.

    Attributes:
        start: the clock's reading when the load began.
        graphs: firstlight's report before and after; None from another server.
        busy: share of one core that the load generator itself took.
    """

    settings: LoadSettings
    server: str
    model: str
    version: str
    workload: Workload
    answers: list[Answer]
    start: float
    graphs: tuple[dict[str, Any], dict[str, Any]] | None
    busy: float


async def measure(
    settings: LoadSettings,
    url: str,
    *,
    key: str | None = None,
    model: str | None = None,
    told: Told | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Put a load on a server.

    Args:
        url: of the server.
        key: of its API.
        model: None is the first that it lists.
        told: called after every answer.

    Raises:
        ConfigError: the server cannot be reached, or answers none of the first requests.
    """
    client = open_client(url, key, settings.timeout, settings.max_concurrency or settings.clients)
    async with client:
        target = await Target.find(client, model)
        workload = make_workload(settings, await target.texts(), _fields(settings, target))
        run = _Run(settings, target, told, clock)
        await run.warm(workload.warmup)
        before = target.graphs and await graphs_of(client)
        started, cpu = clock(), time.process_time()
        answers = await run.load(workload.prompts)
        busy = (time.process_time() - cpu) / max(clock() - started, 1e-9)
        after = target.graphs and await graphs_of(client)
    return Measured(
        settings=settings,
        server=str(client.base_url),
        model=target.model,
        version=target.version,
        workload=workload,
        answers=answers,
        start=min((a.due for a in answers), default=started),
        graphs=(before, after) if before and after else None,
        busy=busy,
    )


class _Run:
    """Sends requests of one load."""

    def __init__(
        self,
        settings: LoadSettings,
        target: Target,
        told: Told | None,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._client = target.client
        self._told = told
        self._clock = clock

    async def warm(self, prompts: Sequence[Prompt]) -> None:
        """Send what does not count; raise ConfigError if none of it is answered."""
        if not prompts:
            return
        found = await closed_loop(
            prompts, self._asking("warm-up", len(prompts)), self._settings.clients
        )
        if all(answer.error for answer in found):
            first = found[0]
            raise ConfigError(f"no request is answered: {first.error}: {first.detail}")

    async def load(self, prompts: Sequence[Prompt]) -> list[Answer]:
        """Send what counts."""
        asking = self._asking("requests", len(prompts))
        rate = self._settings.request_rate
        if rate is None:
            return await closed_loop(prompts, asking, self._settings.clients)
        times = arrivals(rate, len(prompts), self._settings.seed)
        most = self._settings.max_concurrency
        return await open_loop(prompts, asking, times, clock=self._clock, most=most)

    def _asking(self, what: str, n: int) -> Ask:
        done = 0

        async def asking(prompt: Prompt, due: float | None) -> Answer:
            nonlocal done
            answer = await ask(self._client, prompt, clock=self._clock, due=due)
            done += 1
            if self._told is not None:
                self._told(what, done, n)
            return answer

        return asking


def _fields(settings: LoadSettings, target: Target) -> dict[str, Any]:
    """What every request has; nothing that a server might not know, unless it was asked for."""
    fields: dict[str, Any] = {
        "model": target.model,
        "temperature": settings.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.ignore_eos:
        fields["ignore_eos"] = True
    if target.is_firstlight:
        fields["timings"] = True
    return fields
