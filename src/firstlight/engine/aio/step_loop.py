"""The thread that owns an engine: it takes orders, steps, and hands out what the steps gave."""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from firstlight.core.output import FinishReason
from firstlight.engine.aio.job import Delta, Job
from firstlight.engine.engine import Engine, completion
from firstlight.engine.sequence import Sequence
from firstlight.errors import EngineFaultError, RequestError, RequestFailedError

T = TypeVar("T")
Event = tuple[Job, Delta | Exception]
_LOG = logging.getLogger("firstlight.engine")
_RETRY_S = 1.0
_MANY_FAULTS = 5
_MANY_S = 60.0
_QUIET_S = 0.2
"""So long nothing is asked before something is done that a request would have to wait for."""
_BUSY_S = 30.0
"""So long a loop that is never quiet does without what can wait: then one piece of it is done."""


class LoopState(StrEnum):
    """What the step loop is doing.

    ``failed``: it could not be made clean after a fault, or faults came one upon another; only a
    new process helps.
    """

    RUNNING = "running"
    RESTARTING = "restarting"
    FAILED = "failed"
    STOPPED = "stopped"


@dataclass(slots=True, eq=False)
class _Run:
    """A choice that is in the engine, and how much of it was handed out."""

    job: Job
    index: int
    tokens: int = 0
    logprobs: int = 0
    chars: int = 0


class StepLoop:
    """Runs an engine in a thread of its own. Nobody else may call the engine meanwhile.

    Args:
        deliver: takes what steps gave, one list a step; called in the step thread.
        make_clean: called when no request is left after a fault: empties caches, checks the memory,
            and runs a request of its own; raises if anything is amiss.
        share: whether the choices of a request start when the first one's prompt is computed, so
            that they find it in the prefix cache.
        clock: seconds, monotonic; the engine's.
        on_step: told the seconds of every step when its tokens were taken, in the step thread.
        when_quiet: does a piece of work that can wait, and says whether there was any; called in
            the step thread when nothing runs and nobody asks. Its failure is logged, and it is not
            called again.
        when_busy: the same beside running requests; called now and then in a loop that is never
            quiet.
    """

    def __init__(
        self,
        engine: Engine,
        deliver: Callable[[list[Event]], None],
        *,
        make_clean: Callable[[], None],
        share: bool,
        clock: Callable[[], float],
        on_step: Callable[[float], None] | None = None,
        when_quiet: Callable[[], bool] | None = None,
        when_busy: Callable[[], bool] | None = None,
    ) -> None:
        self._engine = engine
        self._deliver = deliver
        self._make_clean = make_clean
        self._share = share
        self._clock = clock
        self._on_step = on_step
        self._spent = 0.0  # since the last step landed
        self._when_quiet = when_quiet
        self._when_busy = when_busy
        self._deferred_at = clock()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="firstlight-step", daemon=True)
        self._live: dict[Sequence, _Run] = {}
        self._followers: dict[Job, list[Sequence]] = {}
        self._events: list[Event] = []
        self._fault_times: list[float] = []
        self._stopping = False
        self.state = LoopState.RUNNING
        self.stepping_since: float | None = None
        self.steps = 0
        self.faults = 0
        self.last_fault: str | None = None

    # -- for other threads ---------------------------------------------------------------------

    def start(self) -> None:
        """Begin to take orders."""
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """End the thread, after the step that it is in; requests in flight get no more events."""
        self._orders.put(self._stop)
        if self._thread.is_alive():
            self._thread.join(timeout)

    def add(self, job: Job) -> None:
        """Run the sequences of a job. An error comes as its event."""
        self._orders.put(lambda: self._add(job))

    def abort(self, job: Job) -> None:
        """Take a job out before the next step; it gets no more events."""
        self._orders.put(lambda: self._abort(job))

    def call(self, function: Callable[[], T]) -> Future[T]:
        """Run ``function`` between two steps, where nothing of the engine is half done."""
        future: Future[T] = Future()

        def order() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(function())
            except Exception as error:
                future.set_exception(error)

        self._orders.put(order)
        return future

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def in_flight(self) -> int:
        """Choices that are in the engine, or follow one that is."""
        return len(self._live) + sum(map(len, list(self._followers.values())))

    # -- the thread ----------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._take_orders()
                if self._live and not self._stopping:
                    self._catch_up()
                    self._step()
            except BaseException as error:  # libraries in Rust panic with what is no Exception
                self._recover(error)
            finally:
                self.stepping_since = None
                self._hand_out()
        self.state = LoopState.STOPPED

    def _take_orders(self) -> None:
        """Carry out what is there; wait for something if nothing runs."""
        if not self._live:
            self._next_order()()
        while not self._stopping:
            try:
                order = self._orders.get_nowait()
            except queue.Empty:
                return
            order()

    def _next_order(self) -> Callable[[], None]:
        """Wait for an order; work that can wait is done meanwhile."""
        while self._when_quiet is not None:
            try:
                return self._orders.get(timeout=_QUIET_S)
            except queue.Empty:
                self._do_deferred(self._when_quiet)
        return self._orders.get()

    def _catch_up(self) -> None:
        """A loop that is never quiet would never come to what can wait."""
        if self._when_busy is not None and self._clock() - self._deferred_at > _BUSY_S:
            self._do_deferred(self._when_busy)

    def _do_deferred(self, work: Callable[[], bool]) -> None:
        self.stepping_since = self._clock()
        try:
            left = work()
        except Exception:
            _LOG.exception("what is done when nobody asks failed")
            left = False
        if not left:
            self._when_quiet = self._when_busy = None
        self.stepping_since = None
        self._deferred_at = self._clock()

    def _stop(self) -> None:
        self._stopping = True

    def _add(self, job: Job) -> None:
        if self.state is LoopState.FAILED:
            self._events.append((job, EngineFaultError(self.last_fault or "")))
            return
        first, rest = job.sequences[:1], job.sequences[1:]
        if not self._share:
            first, rest = job.sequences, []
        for sequence in first:
            self._enter(job, sequence)
        if rest and first[0] in self._live:
            self._followers[job] = rest

    def _enter(self, job: Job, sequence: Sequence) -> None:
        try:
            self._engine.add(sequence)
        except RequestError as error:
            self._events.append((job, error))
            return
        except Exception as error:  # the engine is as it was, and the others go on
            _LOG.error("request %s could not be added", job.id, exc_info=error)
            lost = RequestFailedError(f"the request could not be added ({type(error).__name__})")
            self._events.append((job, lost))
            return
        index = next(i for i, own in enumerate(job.sequences) if own is sequence)
        self._live[sequence] = _Run(job, index)

    def _abort(self, job: Job) -> None:
        self._followers.pop(job, None)
        for sequence in job.sequences:
            if self._live.pop(sequence, None) is not None:
                self._engine.abort(sequence)

    def _step(self) -> None:
        began = self.stepping_since = self._clock()
        landed = self._engine.landed
        self._engine.step()
        now = self._clock()
        self.steps += 1
        self._spent += now - began
        if self._engine.landed > landed:
            if self._on_step is not None:
                self._on_step(self._spent)
            self._spent = 0.0
        for sequence, run in list(self._live.items()):
            self._look_at(sequence, run, began, now)

    def _look_at(self, sequence: Sequence, run: _Run, began: float, now: float) -> None:
        """Make events of what a step did for one choice."""
        job, waits = run.job, run.job.waits
        if waits.started is None and sequence.cached_tokens is not None:
            waits.started = began
        tokens = len(sequence.output_ids)
        if tokens == run.tokens and sequence.finish is None:
            return
        if waits.first_token is None and tokens:
            waits.first_token = now
        if sequence.finish is not None:
            del self._live[sequence]
        if sequence.finish is FinishReason.ERROR:
            kind = RequestError if sequence.is_refused else RequestFailedError
            self._events.append((job, kind(sequence.error or "the request failed")))
        else:
            self._events.append((job, _delta(sequence, run)))
        for follower in self._followers.pop(job, ()):
            self._enter(job, follower)

    def _hand_out(self) -> None:
        if self._events:
            events, self._events = self._events, []
            self._deliver(events)

    def _recover(self, error: BaseException) -> None:
        """Fail what is in flight, and make the engine clean for what comes.

        If nothing ran beside the request in flight, and the engine is well without it, then it was
        that request's fault.
        """
        fault = uuid.uuid4().hex[:12]
        self.state = LoopState.RESTARTING
        jobs = dict.fromkeys([*(run.job for run in self._live.values()), *self._followers])
        sequences = list(self._live)
        self._live.clear()
        self._followers.clear()
        well = self._made_clean(sequences, fault)
        if well and len(sequences) == 1:
            _LOG.error("a request failed alone: fault %s", fault, exc_info=error)
            lost: Exception = RequestFailedError(f"the request failed in the engine ({fault})")
        else:
            self.faults += 1
            self.last_fault = fault
            n = len(jobs)
            _LOG.error("the engine failed: fault %s, %d requests lost", fault, n, exc_info=error)
            lost = EngineFaultError(fault, retry_after=_RETRY_S)
            well = well and not self._too_many()
        self.state = LoopState.RUNNING if well else LoopState.FAILED
        self._events += [(job, lost) for job in jobs]

    def _made_clean(self, sequences: list[Sequence], fault: str) -> bool:
        """Whether the engine could be made clean, and works."""
        try:
            for sequence in sequences:
                self._engine.abort(sequence)
            self._make_clean()
        except BaseException:
            _LOG.exception("the engine could not be made clean after fault %s", fault)
            return False
        return True

    def _too_many(self) -> bool:
        """Whether faults come so quickly that going on serves nobody."""
        now = self._clock()
        self._fault_times = [t for t in self._fault_times if now - t < _MANY_S] + [now]
        return len(self._fault_times) >= _MANY_FAULTS


def _delta(sequence: Sequence, run: _Run) -> Delta:
    """What is new of a choice, and from now on is not."""
    text = sequence.detokenizer.text
    new = Delta(
        index=run.index,
        text=text[run.chars :],
        token_ids=tuple(sequence.output_ids[run.tokens :]),
        logprobs=tuple(sequence.logprobs[run.logprobs :]),
        tokens=len(sequence.output_ids),
        completion=None if sequence.finish is None else completion(sequence),
    )
    run.chars, run.tokens = len(text), len(sequence.output_ids)
    run.logprobs = len(sequence.logprobs)
    return new
