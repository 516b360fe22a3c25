"""The loop: requests in, steps until they are finished, completions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from firstlight.core.output import Completion, FinishReason, Usage
from firstlight.core.plan import BatchPlan
from firstlight.core.reason import Decision, Phase
from firstlight.core.span import count_rows
from firstlight.core.timing import StepRecord
from firstlight.engine.merge import check_media
from firstlight.engine.scheduler import Scheduler
from firstlight.engine.sequence import Sequence
from firstlight.engine.step import Step
from firstlight.errors import BusyError, RequestError
from firstlight.models.adapter import Adapter
from firstlight.sampling import Sampled

Clock = Callable[[], float]


class Engine:
    """Runs sequences to their end. What fails for one request ends that request alone."""

    def __init__(
        self,
        adapter: Adapter,
        scheduler: Scheduler,
        step: Step,
        *,
        stop_ids: frozenset[int],
        clock: Clock,
    ) -> None:
        self._adapter = adapter
        self._scheduler = scheduler
        self._step = step
        self._stop_ids = stop_ids
        self._clock = clock
        self._stepping = Lock()

    def run(self, sequences: list[Sequence]) -> Iterator[None]:
        """Add the sequences and step until all are finished, one step per item.

        A step is whole before it is yielded: other runs may make steps of their own in between,
        with these sequences in them.

        Closing the iterator early, or an exception out of a step, removes them and frees their
        pages.

        Raises:
            BusyError: another thread is in a step of this engine.
        """
        with self._alone():
            for sequence in sequences:
                self._scheduler.add(sequence)
        try:
            while any(s.finish is None for s in sequences):
                with self._alone():
                    plan = self._scheduler.next_batch()
                    assert plan is not None, "an unfinished request is always planned"
                    self._run_plan(plan)
                yield
        finally:
            for sequence in sequences:
                self._scheduler.remove(sequence)
                sequence.media = None

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
        began = self._clock()
        result = self._step.run(plan)
        now = self._clock()
        for chunk in plan.chunks:
            self._account(chunk.request, plan.phase, now - began, result.decision)
        for sequence, sampled in result.sampled:
            self._commit(sequence, sampled, now)

    def _encode(self, plan: BatchPlan[Sequence]) -> BatchPlan[Sequence]:
        """Encode the media that these chunks need; a request whose media fail leaves the plan."""
        kept = []
        for chunk in plan.chunks:
            sequence = chunk.request
            missing = sequence.media is None and sequence.prompt.artifacts
            if missing and count_rows(tuple(sequence.prompt.spans), chunk.start, chunk.end):
                try:
                    self._encode_media(sequence)
                except RequestError as error:
                    self._fail(sequence, error)
                    continue
            kept.append(chunk)
        return BatchPlan(plan.phase, tuple(kept))

    def _encode_media(self, sequence: Sequence) -> None:
        began = self._clock()
        rows = self._adapter.media_rows(sequence.prompt.artifacts)
        check_media(sequence, rows, self._adapter.contract, self._adapter.dtype)
        sequence.media = list(rows)
        sequence.timings.encode_s += self._clock() - began

    def _account(
        self, sequence: Sequence, phase: Phase, seconds: float, decision: Decision
    ) -> None:
        timings = sequence.timings
        timings.steps.append(StepRecord(decision, seconds))
        if phase is Phase.PREFILL:
            timings.prefill_s += seconds
            if sequence.prefilled:
                sequence.media = None
        else:
            timings.decode_s += seconds

    def _commit(self, sequence: Sequence, sampled: Sampled, now: float) -> None:
        """Take a token into the answer, and close the request if it ends it."""
        if sampled.error is not None:
            self._fail(sequence, sampled.error)
            return
        timings = sequence.timings
        if not sequence.output_ids:
            timings.ttft_s = now - sequence.started
        token = sampled.token_id
        sequence.output_ids.append(token)
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
        self._scheduler.remove(sequence)
        sequence.media = None
        sequence.timings.total_s = self._clock() - sequence.started


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
        ),
        timings=sequence.timings,
        logprobs=None if sequence.params.logprobs is None else tuple(sequence.logprobs),
        error=sequence.error,
    )
