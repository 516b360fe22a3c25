"""What every kind of answer shares: running a request, counting it, saying where its time went."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from fastapi import Request
from starlette.responses import JSONResponse, Response

from firstlight.core.output import Completion
from firstlight.engine.aio import Delta, Stream
from firstlight.server.disconnect import ClientLeft, while_connected
from firstlight.server.failures import failure_of
from firstlight.server.service import Service
from firstlight.server.timings import server_timing
from firstlight.server.tracing import AnswerFacts


class Answered:
    """A request while it is answered: its stream, and the choices that are complete."""

    def __init__(
        self, service: Service, stream: Stream, choices: int, facts: dict[str, Any]
    ) -> None:
        self.stream = stream
        self.completions: list[Completion | None] = [None] * choices
        self.tokens = [0] * choices
        self._service = service
        self._facts = facts
        self._last_token: dict[int, float] = {}

    @property
    def whole(self) -> list[Completion]:
        """All choices, once all are complete."""
        return [c for c in self.completions if c is not None]

    @property
    def complete(self) -> bool:
        """Whether all choices are."""
        return None not in self.completions

    def server_timing(self) -> dict[str, str]:
        """The header, as far as the request has got."""
        return {"Server-Timing": server_timing(self.stream.waits, self.completions[0])}

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """Of all choices as they come; the request ends with this generator."""
        async with self._counted(), self.stream as stream:
            async for delta in stream:
                self._see(delta)
                yield delta

    async def run(self) -> None:
        """All of it."""
        async for _ in self.deltas():
            pass

    def _see(self, delta: Delta) -> None:
        self.tokens[delta.index] = delta.tokens
        self.completions[delta.index] = delta.completion
        now = self._service.engine.clock()
        before = self._last_token.get(delta.index)
        if before is not None and delta.token_ids:
            self._service.metrics.observe("inter_token_latency_seconds", now - before)
        elif before is None and not self._last_token:
            ttft = self.stream.waits.ttft_s
            if ttft is not None:
                self._service.metrics.observe("time_to_first_token_seconds", ttft)
        self._last_token[delta.index] = now

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        metrics, facts = self._service.metrics, self._facts
        try:
            yield
        except Exception as error:
            failure = failure_of(error, self.stream.id)
            facts["error"] = failure.code or failure.type
            metrics.failed(failure.code or failure.type)
            raise
        finally:
            waits = self.stream.waits
            facts |= {
                "queue_s": round(waits.queue_s, 4),
                "ttft_s": None if waits.ttft_s is None else round(waits.ttft_s, 4),
                "prompt_tokens": self.stream.prompt_tokens,
                "image_tokens": self.stream.image_tokens or None,
                "completion_tokens": sum(self.tokens),
            }
            if self.complete:
                metrics.finished(waits, self.whole)
                facts["finish"] = ",".join(c.finish_reason.value for c in self.whole)
            elif "error" not in facts:
                metrics.failed("client_left")
            if self._service.tracing is not None:
                self._service.tracing.stages(self._answer_facts())

    def _answer_facts(self) -> AnswerFacts:
        """What its spans are made of."""
        return AnswerFacts(
            model=self._service.model.names[0],
            now=self._service.engine.clock(),
            waits=self.stream.waits,
            prompt_tokens=self.stream.prompt_tokens,
            image_tokens=self.stream.image_tokens,
            completion_tokens=sum(self.tokens),
            completions=self.whole if self.complete else (),
        )


async def answer_whole(
    request: Request, answered: Sequence[Answered], body: Callable[[], Any]
) -> Response:
    """A whole answer at once.

    Args:
        answered: one per prompt.
        body: called for the JSON value when all choices are complete.
    """
    try:
        await while_connected(request.receive, _run_all(answered))
    except ClientLeft:
        request.state.facts["left"] = True
        return Response(status_code=499)  # nobody reads it
    return JSONResponse(body(), headers=answered[0].server_timing())


async def side_by_side(
    answered: Sequence[Answered],
) -> AsyncGenerator[tuple[int, Delta], None]:
    """The deltas of several requests as they come, each with its request's index.

    All are in the house from the beginning: what was accepted with the first is not refused later,
    when the queue is full or the server ends. The first that fails ends the others.
    """
    if len(answered) == 1:
        async with aclosing(answered[0].deltas()) as deltas:
            async for delta in deltas:
                yield 0, delta
        return
    came: asyncio.Queue[tuple[int, Delta] | None] = asyncio.Queue()

    async def bring(index: int, one: Answered) -> None:
        async with aclosing(one.deltas()) as deltas:
            async for delta in deltas:
                came.put_nowait((index, delta))

    tasks = [asyncio.ensure_future(bring(i, one)) for i, one in enumerate(answered)]
    for task in tasks:
        task.add_done_callback(lambda _: came.put_nowait(None))
    left = len(tasks)
    try:
        while left:
            found = await came.get()
            if found is not None:
                yield found
                continue
            left -= 1
            for task in tasks:
                if task.done():
                    task.result()  # raises what it failed with
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _run_all(answered: Sequence[Answered]) -> None:
    """Side by side; the first that fails ends the others."""
    if len(answered) == 1:
        await answered[0].run()
        return
    tasks = [asyncio.ensure_future(one.run()) for one in answered]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


def new_id(kind: str) -> str:
    """A name for an answer."""
    return f"{kind}-{uuid.uuid4().hex}"
