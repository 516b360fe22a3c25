"""The load itself: lone answers first, then many clients at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

import httpx2
from tools.load.answer import Answer, whole_answer
from tools.load.asked import Asked
from tools.load.client import Client, Work
from tools.load.watch import Watch

Pairs = list[tuple[Asked, Answer]]


def lone_answers(url: str, asked: Sequence[Asked]) -> Pairs:
    """The answer to each request when it is the only one in the server."""
    with httpx2.Client(base_url=url, timeout=120, verify=False) as http:
        found: Pairs = []
        for one in asked:
            response = http.post(one.path, json=one.body)
            if response.status_code != 200:
                raise RuntimeError(f"{one.kind}: {response.status_code}: {response.text[:500]}")
            found.append((one, whole_answer(one.path, response.json())))
        return found


async def each_once(work: Work, clients: int) -> None:
    """Every distinct request once, so that the server's caches and threads are there."""
    left, bad = list(work.asked), list(work.bad)

    async def take(client: Client) -> None:
        async with client.connected() as http:
            while left:
                await client.ask(http, *left.pop())
            while bad:
                await client.ask_badly(http, bad.pop())

    await asyncio.gather(*(take(Client(work, i)) for i in range(clients)))


async def under_load(
    work: Work,
    clients: int,
    seed: int,
    watch: Watch,
    meanwhile: Callable[[], Awaitable[None]],
) -> float:
    """All clients, until ``meanwhile`` is done; each ends with the request that it is in.

    Returns:
        Seconds that it took.
    """
    began = time.monotonic()
    going = True
    watching = asyncio.ensure_future(watch.run())
    running = [
        asyncio.ensure_future(Client(work, seed * 1000 + i).run(lambda: going))
        for i in range(clients)
    ]
    try:
        await meanwhile()
        going = False
        await asyncio.gather(*running)
        return time.monotonic() - began
    finally:
        going = False
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
