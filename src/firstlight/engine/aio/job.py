"""One caller's request: its choices, what becomes of them, and when."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from firstlight.core.output import Completion, TokenLogprob
from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.sequence import Sequence

Admit = Callable[[list[SamplingParams], Future[None]], list[Sequence]]
"""Makes a sequence for each of the parameters, all of one prompt; blocks, raises RequestError.

Gives up with CancelledError when the future is done: then nobody waits any more."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What one step added to one choice.

    Attributes:
        index: of the choice.
        text: what became final; often empty, since characters and stop strings span tokens.
        token_ids, logprobs: of the tokens that were generated; ``logprobs`` is empty if none were
            asked for.
        tokens: tokens generated so far.
        completion: the whole answer, with the last delta of the choice.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...]
    tokens: int
    completion: Completion | None = None


@dataclass(slots=True)
class Waits:
    """Clock readings of a request's way, in seconds; None until it got there.

    Attributes:
        received: it came in.
        permitted: its turn to be prepared came.
        admitted: prompt and pictures were ready.
        started: the step began that computed its first row.
        first_token: its first token was there.
        done: it left.
    """

    received: float
    permitted: float | None = None
    admitted: float | None = None
    started: float | None = None
    first_token: float | None = None
    done: float | None = None

    @property
    def queue_s(self) -> float:
        """Seconds in which nothing was done for it."""
        before = 0.0 if self.permitted is None else self.permitted - self.received
        if self.admitted is None or self.started is None:
            return before
        return before + max(self.started - self.admitted, 0.0)

    @property
    def ttft_s(self) -> float | None:
        """Seconds from its arrival to its first token."""
        return None if self.first_token is None else self.first_token - self.received

    @property
    def total_s(self) -> float | None:
        """Seconds from its arrival to its end."""
        return None if self.done is None else self.done - self.received


@dataclass(slots=True, eq=False)
class Job:
    """A request between the event loop and the step thread.

    Attributes:
        outbox: what the caller gets, in order; the event loop's.
        left: choices that the engine is not done with.
        when_done: called once, in the event loop, when it is done with all or any failed; a caller
            who reads slowly holds up nobody.
        sequences: one per choice, once it is admitted; then the step thread's.
    """

    id: str
    outbox: asyncio.Queue[Delta | Exception]
    waits: Waits
    left: int = 1
    when_done: Callable[[], None] | None = None
    sequences: list[Sequence] = field(default_factory=list)

    def put(self, event: Delta | Exception) -> None:
        """Give the caller an event."""
        self.outbox.put_nowait(event)
        if isinstance(event, Exception):
            self.done()
        elif event.completion is not None:
            self.left -= 1
            if not self.left:
                self.done()

    def done(self) -> None:
        """The engine has nothing of it any more."""
        if self.when_done is not None:
            when_done, self.when_done = self.when_done, None
            when_done()
