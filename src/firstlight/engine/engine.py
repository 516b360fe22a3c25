"""The loop: requests in, steps until they are finished, completions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from firstlight.core.output import Completion, FinishReason, Usage
from firstlight.core.plan import BatchPlan
from firstlight.core.reason import Decision
from firstlight.core.timing import StepRecord
from firstlight.engine.encoder import Encoder
from firstlight.engine.scheduling import Scheduler
from firstlight.engine.sequence import Sequence
from firstlight.engine.step import Step
from firstlight.errors import BusyError, RequestError
from firstlight.sampling import Sampled

Clock = Callable[[], float]


class Engine:
    """Runs sequences to their end. What fails for one request ends that request alone.

    Args:
        stop_ids: tokens that end an answer.
        when_idle: called whenever the last request has left, e.g. to check the memory.
    """

    def __init__(
        self,
        scheduler: Scheduler[Sequence],
        encoder: Encoder[Sequence],
        step: Step,
        *,
        stop_ids: frozenset[int],
        clock: Clock,
        when_idle: Callable[[], None] | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._encoder = encoder
        self._step = step
        self._stop_ids = stop_ids
        self._clock = clock
        self._when_idle = when_idle
        self._stepping = Lock()
        self._arrivals = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a request; it runs in the steps that follow.

        Raises:
            RequestError: it could never run in this engine, with the numbers.
            BusyError: another thread is in a step of this engine.
        """
        with self._alone():
            self._arrivals += 1
            sequence.arrival = self._arrivals
            self._scheduler.add(sequence)

    def abort(self, sequence: Sequence) -> None:
        """Take a request out at any moment; what was computed stays in the prefix cache.

        Raises:
            BusyError: another thread is in a step of this engine.
        """
        with self._alone():
            if sequence.finish is None:
                sequence.finish = FinishReason.ABORT
                self._close(sequence)

    def step(self) -> bool:
        """Run one batch.

        Returns:
            False if there was nothing to do.

        Raises:
            BusyError: another thread is in a step of this engine.
        """
        with self._alone():
            plan = self._scheduler.next_batch()
            if plan is None:
                return False
            self._run_plan(plan)
            return True

    def run(self, sequences: list[Sequence]) -> Iterator[None]:
        """Add the sequences and step until all are finished, one step per item.

        A step is whole before it is yielded: other runs may make steps of their own in between,
        with these sequences in them.

        Closing the iterator early, or an exception out of a step, aborts them.

        Raises:
            RequestError: a request could never run in this engine.
            BusyError: another thread is in a step of this engine.
        """
        try:
            for sequence in sequences:
                self.add(sequence)
            while any(s.finish is None for s in sequences):
                stepped = self.step()
                assert stepped, "an unfinished request is always planned"
                yield
        finally:
            self._drop(sequences)

    def _drop(self, sequences: list[Sequence]) -> None:
        """Abort without a lock: an exception may have left a step in the middle."""
        for sequence in sequences:
            if sequence.finish is None:
                sequence.finish = FinishReason.ABORT
                self._close(sequence)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Slots and pages are one set: two steps at once would mix two batches in silence."""
        if not self._stepping.acquire(blocking=False):
            raise BusyError(
                "another thread is using this LLM; make one call at a time, or one LLM per thread"
            )
        try:
            yield
        finally:
            self._stepping.release()

    def _run_plan(self, plan: BatchPlan[Sequence]) -> None:
        plan = self._encode(plan)
        if not plan.chunks:
            return
        generating = {id(c.request) for c in plan.chunks if c.request.output_ids}
        began = self._clock()
        result = self._step.run(plan)
        now = self._clock()
        self._scheduler.commit(plan)
        self._encoder.done(plan)
        for chunk in plan.chunks:
            request = chunk.request
            if request.cached_tokens is None:
                request.cached_tokens = chunk.start
            decoding = id(request) in generating
            self._account(request, len(chunk), now - began, result.decision, decoding=decoding)
        for sequence, sampled in result.sampled:
            self._commit(sequence, sampled, now)

    def _encode(self, plan: BatchPlan[Sequence]) -> BatchPlan[Sequence]:
        """Encode the pictures that these chunks need; a request whose own fail leaves the plan."""
        gathered = self._encoder.gather(plan)
        for sequence, error in gathered.failed:
            self._fail(sequence, error)
        return gathered.plan

    def _account(
        self,
        sequence: Sequence,
        tokens: int,
        seconds: float,
        decision: Decision,
        *,
        decoding: bool,
    ) -> None:
        """A step counts as prefill until the first token is there, mixed batches included."""
        timings = sequence.timings
        timings.steps.append(StepRecord(decision, seconds, tokens))
        if decoding:
            timings.decode_s += seconds
        else:
            timings.prefill_s += seconds

    def _commit(self, sequence: Sequence, sampled: Sampled, now: float) -> None:
        """Take a token into the answer, and close the request if it ends it."""
        if sampled.error is not None:
            self._fail(sequence, sampled.error)
            return
        if not sequence.output_ids:
            sequence.timings.ttft_s = now - sequence.started
        token = sampled.token_id
        sequence.take(token)
        if sampled.logprob is not None:
            sequence.logprobs.append(sampled.logprob)
        if self._ends(sequence, token):
            sequence.finish = FinishReason.STOP
        else:
            sequence.detokenizer.push(token)
            if sequence.detokenizer.stopped:
                sequence.finish = FinishReason.STOP
            elif len(sequence.output_ids) >= sequence.max_tokens:
                sequence.finish = FinishReason.LENGTH
        if sequence.finish is not None:
            sequence.detokenizer.finish()
            self._close(sequence)

    def _ends(self, sequence: Sequence, token: int) -> bool:
        params = sequence.params
        if len(sequence.output_ids) < params.min_tokens:
            return False
        if token in params.stop_token_ids:
            return True
        return token in self._stop_ids and not params.ignore_eos

    def _fail(self, sequence: Sequence, error: RequestError) -> None:
        sequence.finish = FinishReason.ERROR
        sequence.error = str(error)
        self._close(sequence)

    def _close(self, sequence: Sequence) -> None:
        # What a failed request computed is as suspect as what made it fail.
        self._scheduler.remove(sequence, keep=sequence.finish is not FinishReason.ERROR)
        self._encoder.forget(sequence)
        sequence.timings.total_s = self._clock() - sequence.started
        if self._when_idle is not None:
            stats = self._scheduler.stats
            if not stats.waiting and not stats.running:
                self._when_idle()


def completion(sequence: Sequence) -> Completion:
    """The answer of a finished sequence."""
    assert sequence.finish is not None
    prompt = sequence.prompt
    return Completion(
        text=sequence.detokenizer.text,
        token_ids=tuple(sequence.output_ids),
        finish_reason=sequence.finish,
        usage=Usage(
            prompt_tokens=len(prompt.ids),
            completion_tokens=len(sequence.output_ids),
            image_tokens=sum(len(span) for span in prompt.spans),
            cached_tokens=sequence.cached_tokens or 0,
        ),
        timings=sequence.timings,
        logprobs=None if sequence.params.logprobs is None else tuple(sequence.logprobs),
        error=sequence.error,
    )
