"""What goes wrong on purpose under load: a kill, a fault of the step loop, a server's end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace

import httpx2
from tools.load.checks import Check, Excuse, of_answers
from tools.load.client import Work
from tools.load.compare import Spread
from tools.load.process import START_S, ServerProcess, running
from tools.load.run import under_load
from tools.load.tally import Tally, Trouble
from tools.load.watch import Watch

_LEAD_S, _AFTER_S = 6.0, 10.0
_SLACK_S = 1.0
_ON_ITS_WAY_S = 0.5
"""Before a signal: what was sent after that may not have been accepted yet."""
_MORE = 1.25
"""A start beside waiting clients may take this much of one on a quiet machine, and a second."""


@dataclass(slots=True)
class Incident:
    """One incident: when it was, what it did, what is claimed of it."""

    name: str
    work: Work
    clients: int
    at: float = 0.0
    checks: list[Check] = field(default_factory=list)
    unexcused: list[Trouble] = field(default_factory=list)

    def claim(self, name: str, found: object, accepted: str, holds: bool) -> None:
        """Add a check."""
        self.checks.append(Check(f"{self.name}: {name}", str(found), accepted, holds))

    def claim_answers(self, excused: Excuse) -> None:
        """Add those of the answers; what is excused is counted."""
        tally = self.work.tally
        self.unexcused = [t for t in tally.troubles if not excused(t)]
        n = len(tally.troubles) - len(self.unexcused)
        self.checks += [
            replace(check, name=f"{self.name}: {check.name}")
            for check in of_answers(tally, excused)
        ]
        self.claim("requests it cost, each told so", n, "", True)


def of(name: str, work: Work, process: ServerProcess, clients: int) -> Incident:
    """An incident with counts of its own."""
    own = replace(work, url=process.url, tally=Tally(), spread=Spread())
    return Incident(name, own, clients)


async def killed(incident: Incident, process: ServerProcess) -> None:
    """``kill -9`` of the engine's process under its supervisor."""
    tally, before = incident.work.tally, process.engine
    back = gone = answers = 0.0

    async def meanwhile() -> None:
        nonlocal back, gone, answers
        await asyncio.sleep(_LEAD_S)
        incident.at = time.monotonic()
        os.kill(before, signal.SIGKILL)
        while running(before):  # giving its memory back takes a while; its connections end then
            await asyncio.sleep(0.005)
        gone = time.monotonic()
        await _healthy(process.url)
        back = time.monotonic() - incident.at
        answers = tally.answers
        await asyncio.sleep(_AFTER_S)

    await under_load(
        incident.work, incident.clients, 1, Watch(process, lambda: tally.in_flight), meanwhile
    )
    most = _MORE * process.start_s + _SLACK_S
    incident.claim("seconds until it serves again", f"{back:.1f}", f"{most:.1f}", back <= most)
    incident.claim("a new process", process.engine != before, "True", process.engine != before)
    later = tally.answers - answers
    incident.claim("answers after it was back", int(later), "above 0", later > 0)
    incident.claim_answers(
        lambda t: t.kind == "broken" and t.began <= gone and t.ended >= incident.at
    )


async def faulted(incident: Incident, process: ServerProcess) -> None:
    """An exception out of the step loop, with a step half done."""
    tally = incident.work.tally
    answers = 0

    async def meanwhile() -> None:
        nonlocal answers
        await asyncio.sleep(_LEAD_S)
        incident.at = time.monotonic()
        process.send(signal.SIGUSR1)
        await asyncio.sleep(_AFTER_S)
        answers = tally.answers

    watch = Watch(process, lambda: tally.in_flight)
    await under_load(incident.work, incident.clients, 2, watch, meanwhile)
    last = watch.health[-1]
    incident.claim("faults that /health tells", last.faults, "1", last.faults == 1)
    incident.claim("/health in the end", last.status, "ok", last.status == "ok")
    lines = len(process.lines("the engine failed: fault"))
    incident.claim("lines about it in the log", lines, "1", lines == 1)
    excused = _codes(incident, "engine_fault")
    incident.claim("requests told engine_fault", n := sum(map(excused, tally.troubles)), "", n > 0)
    later = sum(t.kind == "told" for t in tally.troubles if not excused(t))
    incident.claim("other errors", later, "0", not later)
    incident.claim_answers(excused)


async def ended(incident: Incident, process: ServerProcess, drain_s: float = 30.0) -> None:
    """SIGTERM: what was accepted is finished, what comes is refused, and the process ends well."""
    tally = incident.work.tally
    code: int | None = None
    took = 0.0

    async def meanwhile() -> None:
        nonlocal code, took
        await asyncio.sleep(_LEAD_S)
        incident.at = time.monotonic()
        process.send(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            code = await asyncio.to_thread(process.wait, drain_s + 10)
        took = time.monotonic() - incident.at

    watch = Watch(process, lambda: tally.in_flight)
    await under_load(incident.work, incident.clients, 3, watch, meanwhile)
    incident.claim("exit code", code, "0", code == 0)
    incident.claim("seconds until its end", f"{took:.1f}", f"{drain_s:g}", took <= drain_s)
    refused = _codes(incident, "shutting_down")
    n = sum(map(refused, tally.troubles))
    incident.claim("requests told shutting_down", n, "above 0", n > 0)
    incident.claim_answers(lambda t: t.began >= incident.at - _ON_ITS_WAY_S and _refused(t))


def _refused(trouble: Trouble) -> bool:
    """Whether a request was told that the server ends, or found nobody there any more."""
    return trouble.kind == "broken" or trouble.code == "shutting_down"


def _codes(incident: Incident, code: str) -> Excuse:
    return lambda t: t.kind == "told" and t.code == code and t.ended >= incident.at


async def _healthy(url: str) -> None:
    """Until ``/health`` answers 200 again."""
    until = time.monotonic() + START_S
    async with httpx2.AsyncClient(base_url=url, timeout=START_S, verify=False) as http:
        while time.monotonic() < until:
            try:
                if (await http.get("/health")).status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            await asyncio.sleep(0.05)
