"""What a server says about itself while it is under load, and what the system says about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import httpx2
from prometheus_client.parser import text_string_to_metric_families
from tools.load.process import Facts, ServerProcess

_POLL_S = 0.5
_PATIENCE_S = 10.0
_IDLE_S = 60.0
_PREFIX = "firstlight_"


@dataclass(frozen=True, slots=True)
class Health:
    """One look at ``/health``.

    Attributes:
        status: ``ok`` or the reason why not; None if nobody answered.
        seconds: that it took.
        in_flight: requests of the clients at that time.
    """

    at: float
    status: str | None
    steps: int
    faults: int
    seconds: float
    in_flight: int


@dataclass(frozen=True, slots=True)
class Idle:
    """A server at rest.

    Attributes:
        left: what should be 0 at rest, by metric.
        cached: entries and bytes of its caches.
    """

    facts: Facts
    pages: dict[str, int]
    left: dict[str, int]
    cached: dict[str, int]


@dataclass(slots=True)
class Watch:
    """Looks twice a second, and remembers everything."""

    process: ServerProcess
    in_flight: Callable[[], int]
    health: list[Health] = field(default_factory=list)
    facts: list[tuple[float, Facts]] = field(default_factory=list)

    async def run(self) -> None:
        """Until it is cancelled."""
        async with httpx2.AsyncClient(
            base_url=self.process.url, timeout=_PATIENCE_S, verify=False
        ) as http:
            while True:
                began = time.monotonic()
                self.health.append(await self.look(http))
                with suppress(OSError, KeyError):  # it may be away at the moment
                    self.facts.append((began, self.process.facts()))
                await asyncio.sleep(max(began + _POLL_S - time.monotonic(), 0))

    async def look(self, http: httpx2.AsyncClient) -> Health:
        """One look."""
        began, in_flight = time.monotonic(), self.in_flight()
        try:
            body = (await http.get("/health")).json()
        except httpx2.TransportError:
            return Health(began, None, 0, 0, time.monotonic() - began, in_flight)
        seconds = time.monotonic() - began
        return Health(began, body["status"], body["steps"], body["faults"], seconds, in_flight)

    def longest_standstill(self) -> float:
        """Seconds in which requests were under way and no step was made, at most."""
        most, since, steps = 0.0, None, -1
        for look in self.health:
            if look.steps != steps or not look.in_flight:
                since, steps = look.at, look.steps
            elif since is not None:
                most = max(most, look.at - since)
        return most

    def slope(self) -> float:
        """Bytes of resident memory a minute, over the second half; 0 if there is too little."""
        points = self.facts[len(self.facts) // 2 :]
        if len(points) < 3:
            return 0.0
        n = len(points)
        at = sum(t for t, _ in points) / n
        rss = sum(f.rss for _, f in points) / n
        over = sum((t - at) * (f.rss - rss) for t, f in points)
        return 60 * over / sum((t - at) ** 2 for t, _ in points)

    def curve(self) -> list[tuple[float, int]]:
        """Seconds since the first look and resident bytes, every half minute."""
        points = self.facts[:: round(30 / _POLL_S)]
        return [(round(at - points[0][0], 1), facts.rss) for at, facts in points]


async def metrics(url: str) -> dict[str, float]:
    """All metrics of a server by name and labels, e.g. ``kv_cache_pages{state=free}``."""
    async with httpx2.AsyncClient(base_url=url, timeout=_PATIENCE_S, verify=False) as http:
        text = (await http.get("/metrics")).text
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = [f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "model_name"]
            name = sample.name.removeprefix(_PREFIX) + (f"{{{','.join(labels)}}}" if labels else "")
            found[name] = sample.value
    return found


async def idle(process: ServerProcess) -> Idle:
    """The server when nothing is left of any request, waited for."""
    until = time.monotonic() + _IDLE_S
    while True:
        read = await metrics(process.url)
        left = {name: round(n) for name, n in read.items() if _is_left(name)}
        if not any(left.values()) or time.monotonic() > until:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)  # connections that were closed are let go by then
    pages = {
        state: round(read[f"kv_cache_pages{{space=virtual,state={state}}}"])
        for state in ("free", "cached", "held")
    }
    cached = {
        name: round(read[name])
        for name in ("encoder_cache_entries", "embed_cache_bytes", "mm_cache_bytes")
    }
    return Idle(process.facts(), pages, left, cached)


def _is_left(name: str) -> bool:
    if name.startswith("kv_cache_pages"):
        return name.endswith("state=held}")
    return name.startswith(("num_requests_running", "num_requests_waiting", "waiting_bytes"))
