"""How requests come: one after another from a number of clients, or at times of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext

from firstlight.bench.answer import Answer
from firstlight.bench.workload import Prompt

Ask = Callable[[Prompt, float | None], Awaitable[Answer]]
"""Sends a request that was due at a time; None is now."""


async def closed_loop(prompts: Sequence[Prompt], ask: Ask, clients: int) -> list[Answer]:
    """Each of ``clients`` asks again as soon as it has its answer. In the order of the prompts."""
    waiting = iter(enumerate(prompts))
    found: dict[int, Answer] = {}

    async def client() -> None:
        for i, prompt in waiting:
            found[i] = await ask(prompt, None)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(clients, len(prompts))):
            group.create_task(client())
    return [found[i] for i in range(len(prompts))]


async def open_loop(
    prompts: Sequence[Prompt],
    ask: Ask,
    times: Sequence[float],
    *,
    clock: Callable[[], float],
    most: int | None = None,
) -> list[Answer]:
    """Each request is due at its time, whatever became of those before it.

    Args:
        times: seconds from the start, one a prompt, ascending.
        clock: seconds; the one of the answers.
        most: requests under way; those that are due beyond it wait here, and their time runs.
    """
    limit = nullcontext() if most is None else asyncio.Semaphore(most)
    start = clock()

    async def one(prompt: Prompt, due: float) -> Answer:
        async with limit:
            return await ask(prompt, due)

    tasks = []
    async with asyncio.TaskGroup() as group:
        for prompt, time in zip(prompts, times, strict=True):
            due = start + time
            if (wait := due - clock()) > 0:
                await asyncio.sleep(wait)
            tasks.append(group.create_task(one(prompt, due)))
    return [task.result() for task in tasks]
