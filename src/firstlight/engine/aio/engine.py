"""The engine as a server sees it: requests in from an event loop, deltas out to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Seq
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.admission import Draft
from firstlight.engine.aio.intake import Intake
from firstlight.engine.aio.job import Admit, Job
from firstlight.engine.aio.limits import ServingLimits
from firstlight.engine.aio.step_loop import Event, LoopState, StepLoop
from firstlight.engine.aio.stream import Stream
from firstlight.engine.build import Parts
from firstlight.engine.chat_options import PLAIN, ChatOptions
from firstlight.engine.late import provable_rows
from firstlight.engine.sequence import Sequence
from firstlight.errors import DrainingError, EngineFaultError, RequestFailedError
from firstlight.memory.integrity import check as check_memory

T = TypeVar("T")
_LOG = logging.getLogger("firstlight.engine")
_STOP_S = 10.0


class AsyncEngine:
    """Serves many callers of one event loop from one engine.

    The engine is stepped in a thread of its own. Templates, tokenizing and pictures are done in a
    bounded pool of other threads, a bounded number of requests ahead of the engine; whatever more
    comes waits in order, and beyond that is refused.

    Args:
        parts: the engine's; nobody else may run it from now on.
        limits: of the queue.
        clock: the one that ``parts`` were built with.
        on_step: told the seconds of every step, in the step thread.

    Attributes:
        permits: one for each request that may be prepared or run.
    """

    def __init__(
        self,
        parts: Parts,
        limits: ServingLimits,
        *,
        clock: Callable[[], float],
        on_step: Callable[[float], None] | None = None,
    ) -> None:
        self.parts = parts
        self.limits = limits
        self.clock = clock
        running = parts.config.max_num_seqs
        self.intake = Intake(running + limits.max_waiting, limits.max_bytes, running)
        self.permits = asyncio.Semaphore(running + limits.ahead)
        self.loop = StepLoop(
            parts.engine,
            self._deliver,
            make_clean=self._make_clean,
            share=parts.config.prefix_cache,
            clock=clock,
            on_step=on_step,
            when_quiet=parts.late.next,
            when_busy=self._late_graph,
        )
        self.draining = False
        self._pool = ThreadPoolExecutor(limits.threads, "firstlight-admit")
        self._events: asyncio.AbstractEventLoop | None = None
        self._jobs: dict[Job, None] = {}

    async def start(self) -> None:
        """Begin to serve callers of the running event loop."""
        self._events = asyncio.get_running_loop()
        self.loop.start()

    async def close(self) -> None:
        """End at once; requests in flight get a DrainingError.

        A step that hangs is not waited for: its thread ends with the process.
        """
        self.draining = True
        self._fail_all("the server is shutting down; the answer is not complete")
        await asyncio.to_thread(self.loop.stop, _STOP_S)
        if self.loop.alive:
            _LOG.error("the step that is under way did not end within %g s", _STOP_S)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _late_graph(self) -> bool:
        rows = provable_rows(self.parts.kv, self.parts.memory.max_context)
        return self.parts.late.next_beside(rows)

    async def drain(self, seconds: float) -> None:
        """Take no more requests, let those in flight end, and take out what is left after that."""
        self.draining = True
        until = self.clock() + seconds
        while self._jobs and self.clock() < until:
            await asyncio.sleep(0.02)
        self._fail_all(
            f"the server is shutting down and could not finish this within {seconds:g} s"
        )

    def chat(
        self,
        messages: Seq[Mapping[str, Any]],
        params: SamplingParams,
        *,
        n: int = 1,
        mm_processor_kwargs: Mapping[str, object] | None = None,
        options: ChatOptions = PLAIN,
        request_id: str = "",
    ) -> Stream:
        """A conversation's answer; see :meth:`firstlight.LLM.chat` for the messages."""
        read = partial(
            self.parts.admission.read_chat, messages, kwargs=mm_processor_kwargs, options=options
        )
        return self.submit(partial(self._admit, read), params, n=n, request_id=request_id)

    def text(
        self,
        prompt: str | Seq[int],
        params: SamplingParams,
        *,
        n: int = 1,
        request_id: str = "",
    ) -> Stream:
        """What follows a raw prompt, given as text or as token ids."""
        read = partial(self.parts.admission.read_text, prompt, ())
        return self.submit(partial(self._admit, read), params, n=n, request_id=request_id)

    def submit(
        self, admit: Admit, params: SamplingParams, *, n: int = 1, request_id: str = ""
    ) -> Stream:
        """``n`` answers to what ``admit`` makes, which is called in the pool.

        With a seed, answer ``i`` has ``seed + i``.
        """
        return Stream(self, admit, [_of_choice(params, i) for i in range(n)], request_id)

    async def call(self, function: Callable[[], T]) -> T:
        """Run ``function`` in the step thread between two steps."""
        return await asyncio.wrap_future(self.loop.call(function))

    def in_pool(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Run ``function`` in one of the threads that prepare requests."""
        assert self._events is not None, "start() comes first"
        return self._events.run_in_executor(self._pool, partial(_contained, function))

    def check_open(self) -> None:
        """Raise DrainingError or EngineFaultError if nothing more is taken."""
        if self.draining:
            raise DrainingError("the server is shutting down and takes no more requests")
        if self.loop.state is LoopState.FAILED:
            raise EngineFaultError(self.loop.last_fault or "")

    def _admit(
        self,
        read: Callable[[SamplingParams], Draft],
        params: list[SamplingParams],
        gone: Future[None],
    ) -> list[Sequence]:
        admission = self.parts.admission
        draft = read(params[0])
        (prepared,) = admission.prepare([draft], until=gone)
        return [admission.admit(replace(draft, params=own), prepared) for own in params]

    # -- for streams ---------------------------------------------------------------------------

    def know(self, job: Job) -> None:
        """A job is in the house."""
        self._jobs[job] = None

    def forget(self, job: Job) -> None:
        """A job left."""
        self._jobs.pop(job, None)

    # -- for the step thread -------------------------------------------------------------------

    def _deliver(self, events: list[Event]) -> None:
        assert self._events is not None
        try:
            self._events.call_soon_threadsafe(_put, events)
        except RuntimeError:  # the event loop is closed: nobody is left to tell
            _LOG.warning("%d events after the end of the event loop", len(events))

    def _make_clean(self) -> None:
        self.parts.kv.flush()
        self.parts.encoder_cache.flush()
        check_memory(self.parts.kv)
        probe = self.parts.admission.text("a", (), SamplingParams(temperature=0, max_tokens=1))
        for _ in self.parts.engine.run([probe]):
            pass
        if probe.error is not None:
            raise RequestFailedError(f"a request of one token fails: {probe.error}")

    def _fail_all(self, message: str) -> None:
        for job in list(self._jobs):
            job.put(DrainingError(message))
            self.loop.abort(job)


def _contained(function: Callable[[], T]) -> T:
    """``function``'s result. What is no Exception would pass by everything that handles errors:
    libraries in Rust panic with such a thing.

    Raises:
        RequestFailedError: instead of it.
    """
    try:
        return function()
    except Exception:
        raise
    except BaseException as error:
        _LOG.error("a request could not be prepared", exc_info=error)
        name = type(error).__name__
        raise RequestFailedError(f"the request could not be prepared ({name})") from error


def _put(events: list[Event]) -> None:
    for job, event in events:
        job.put(event)


def _of_choice(params: SamplingParams, index: int) -> SamplingParams:
    return params if params.seed is None else replace(params, seed=params.seed + index)
