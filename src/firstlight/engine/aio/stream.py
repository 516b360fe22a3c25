"""What a caller holds of a request: its deltas, one after another, and the way to end it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self, TypeVar

from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.aio.job import Admit, Delta, Job, Waits
from firstlight.engine.sequence import Sequence
from firstlight.errors import DeadlineError

if TYPE_CHECKING:
    from firstlight.engine.aio.engine import AsyncEngine

T = TypeVar("T")


class Stream:
    """The answer to one request, as it is generated.

    ::

        async with engine.chat(messages, params) as stream:
            async for delta in stream:
                ...

    Leaving the block, for whatever reason, takes the request out of the engine before its next
    step, and ends the preparation of its pictures.

    Attributes:
        waits: when the request got where.
        prompt_tokens, image_tokens: of its prompt; 0 until it is admitted.
    """

    def __init__(
        self, engine: AsyncEngine, admit: Admit, params: list[SamplingParams], request_id: str
    ) -> None:
        self._engine = engine
        self._admit = admit
        self._params = params
        self._job = Job(request_id, asyncio.Queue(), Waits(engine.clock()), len(params))
        self._until = self.waits.received + engine.limits.deadline_s
        self._gone: Future[None] = Future()  # done when nobody waits for the answer any more
        self._held = ExitStack()
        self._left = len(params)
        self._begun = self._added = False
        self.prompt_tokens = self.image_tokens = 0

    @property
    def waits(self) -> Waits:
        """When the request got where."""
        return self._job.waits

    @property
    def id(self) -> str:
        """The request's name in logs."""
        return self._job.id

    async def __aenter__(self) -> Self:
        """Get into the queue.

        Raises:
            OverloadedError: it is full.
            DrainingError, EngineFaultError: the engine takes nothing.
        """
        self._engine.check_open()
        self._held.enter_context(self._engine.intake.enter())
        self._held.callback(self._engine.forget, self._job)
        self._engine.know(self._job)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.waits.done = self._engine.clock()
        if not self._gone.done():
            self._gone.set_result(None)
        if self._added and self._left:
            self._engine.loop.abort(self._job)
        self._held.close()
        if not self._left:
            self._engine.intake.finished(self.waits.done - self.waits.received)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        """The next delta.

        Raises:
            RequestError: the request is invalid.
            ServingError: it got no answer, see there.
        """
        if not self._begun:
            self._begun = True
            await self._begin()
        if not self._left:
            raise StopAsyncIteration
        event = await self._job.outbox.get()
        if isinstance(event, Exception):
            raise event
        if event.completion is not None:
            self._left -= 1
        return event

    async def completions(self) -> list[Completion]:
        """The whole answer: all choices, in order. Raises as :meth:`__anext__`."""
        found: dict[int, Completion] = {}
        async for delta in self:
            if delta.completion is not None:
                found[delta.index] = delta.completion
        return [found[i] for i in sorted(found)]

    async def _begin(self) -> None:
        """Wait for a turn, prepare the prompt and its pictures, and hand all to the step thread."""
        permits = self._engine.permits
        await self._within(permits.acquire())
        self._job.when_done = permits.release
        self._held.callback(self._job.done)
        self._check()
        self.waits.permitted = self._engine.clock()
        sequences = await self._within(self._engine.in_pool(self._make))
        self._check()
        self.waits.admitted = self._engine.clock()
        prompt = sequences[0].prompt
        self.prompt_tokens = len(prompt.ids)
        self.image_tokens = sum(map(len, prompt.spans))
        self._job.sequences = sequences
        self._added = True
        self._end_in_time()
        self._engine.loop.add(self._job)

    def _end_in_time(self) -> None:
        """From here on the deadline is an event like others: a timer for the whole answer, and not
        one for the wait for each token."""
        seconds = max(self._until - self._engine.clock(), 0.0)
        outbox, late = self._job.outbox, self._late()
        timer = asyncio.get_running_loop().call_later(seconds, outbox.put_nowait, late)
        self._held.callback(timer.cancel)

    def _check(self) -> None:
        """Raise what was said of the request while it waited, e.g. that the server shuts down."""
        if not self._job.outbox.empty():
            event = self._job.outbox.get_nowait()
            if isinstance(event, Exception):
                raise event

    def _make(self) -> list[Sequence]:
        return self._admit(self._params, self._gone)

    async def _within(self, work: Awaitable[T]) -> T:
        # Not wait_for, which before Python 3.12 may swallow a cancellation.
        try:
            async with asyncio.timeout(self._until - self._engine.clock()) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise self._late() from None

    def _late(self) -> DeadlineError:
        seconds = self._engine.limits.deadline_s
        return DeadlineError(f"the request took longer than the {seconds:g} s it may")
