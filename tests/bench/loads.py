"""Loads on the fake server, as tests put them."""

from __future__ import annotations

import asyncio
from typing import Any

from firstlight.bench import LoadSettings, Measured, measure
from firstlight.bench.answer import Answer
from tests.bench.fake_server import FakeServer, serving


def load(
    server: FakeServer, model: str | None = None, key: str | None = None, **settings: Any
) -> Measured:
    """Measure the server; no warm-up unless the settings have one."""
    own = LoadSettings.from_options({"num_requests": 3, "warmup": 0, "timeout": 5.0} | settings)

    async def run() -> Measured:
        async with serving(server):
            return await measure(own, server.url, key=key, model=model)

    return asyncio.run(run())


def came(*pieces: float, due: float = 0.0, ended: float | None = None, **more: Any) -> Answer:
    """An answer whose pieces came at these times."""
    facts = {"sent": due, "max_tokens": 9, "completion_tokens": len(pieces)} | more
    return Answer(due=due, ended=pieces[-1] if ended is None else ended, pieces=pieces, **facts)


def failed(kind: str, due: float = 0.0, ended: float = 1.0, detail: str = "") -> Answer:
    """A request that got no answer."""
    return Answer(due=due, sent=due, ended=ended, max_tokens=9, error=kind, detail=detail)
