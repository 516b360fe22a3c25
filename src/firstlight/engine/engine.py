"""The loop: requests in, steps until they are finished, completions out."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from firstlight.core.output import Completion, FinishReason, Usage
from firstlight.core.plan import BatchPlan
from firstlight.core.reason import Decision, Phase
from firstlight.core.timing import StepRecord
from firstlight.engine.encoder import Encoder
from firstlight.engine.scheduling import Scheduler
from firstlight.engine.sequence import Sequence
from firstlight.engine.step import Step, StepResult
from firstlight.engine.turns import Turns
from firstlight.errors import FormError, RequestError
from firstlight.sampling import Sampled

Clock = Callable[[], float]
_Done = tuple[BatchPlan[Sequence], StepResult]


class Engine:
    """Runs sequences to their end. What fails for one request ends that request alone.

    After an exception that is not one request's (an interrupt, say) the requests that are left are
    computed again, in an empty memory, and go on where they were.

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
        self._turns: Turns[Sequence] = Turns(self._abort, self._begin_anew)
        self._arrivals = 0

    def add(self, sequence: Sequence) -> None:
        """Queue a request; it runs in the steps that follow.

        Raises:
            RequestError: it could never run in this engine, with the numbers.
            ValueError: it was added before, or has ended.
            BusyError: another thread is in a step of this engine.
        """
        with self._turns.take():
            refusal = self._add(sequence)
        if refusal is not None:
            raise refusal

    def _add(self, sequence: Sequence) -> RequestError | ValueError | None:
        """Queue a request, or say why not with everything as it was."""
        if sequence.arrival or sequence.finish is not None:
            return ValueError("a request is added once, and not after its end")
        sequence.arrival = self._arrivals + 1
        try:
            self._scheduler.add(sequence)
        except (RequestError, ValueError) as error:
            sequence.arrival = 0
            return error
        self._arrivals += 1
        return None

    def abort(self, sequence: Sequence) -> None:
        """Take a request out at any moment; what was computed stays in the prefix cache.

        Raises:
            BusyError: another thread is in a step of this engine.
        """
        with self._turns.take():
            self._abort(sequence)

    def _abort(self, sequence: Sequence) -> None:
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
        with self._turns.take():
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
        added: list[Sequence] = []
        try:
            for sequence in sequences:
                self.add(sequence)
                added.append(sequence)
            while any(s.finish is None for s in sequences):
                stepped = self.step()
                assert stepped, "an unfinished request is always planned"
                yield
        finally:
            self._turns.leave(s for s in added if s.finish is None)

    def _begin_anew(self) -> None:
        """Half a step may have been done: keep the requests and what they generated, nothing else.

        A request that ended meanwhile, or was ending, is gone.
        """
        self._encoder.reset()
        for sequence in self._scheduler.restart():
            sequence.media.clear()
            sequence.sampling.rewind()
            if sequence.finish is not None:
                self._scheduler.remove(sequence)
                sequence.timings.total_s = self._clock() - sequence.started

    def _run_plan(self, plan: BatchPlan[Sequence]) -> None:
        plan = self._encode(plan)
        if not plan.chunks:
            return
        generating = {id(c.request) for c in plan.chunks if c.request.output_ids}
        began = self._clock()
        done = self._compute(plan)
        now = self._clock()
        for part, result in done:
            # What a failed request computed is as suspect as what made it fail: it leaves before
            # the rest is offered to the prefix cache.
            for sequence, sampled in result.sampled:
                if sampled.error is not None:
                    self._fail(sequence, sampled.error)
            self._scheduler.commit(part)
            self._encoder.done(part)
            for chunk in part.chunks:
                request = chunk.request
                if request.cached_tokens is None:
                    request.cached_tokens = chunk.start
                decoding = id(request) in generating
                self._account(request, len(chunk), now - began, result.decision, decoding=decoding)
        for _, result in done:
            for sequence, sampled in result.sampled:
                if sampled.error is None:
                    self._commit(sequence, sampled, now)

    def _compute(self, plan: BatchPlan[Sequence]) -> list[_Done]:
        """Run the step; if it fails, find out for which of its requests it does."""
        try:
            return [(plan, self._step.run(plan))]
        except Exception as error:
            stats = self._scheduler.stats
            if stats.waiting + stats.running == 1:
                raise  # to the only one whom it may concern
            return self._compute_apart(plan, error)

    def _compute_apart(self, plan: BatchPlan[Sequence], error: Exception) -> list[_Done]:
        """Each request by itself. Whoever fails alone, too, ends with that error.

        Raises:
            Exception: ``error``, if none of several can run: that is no request's doing.
        """
        done: list[_Done] = []
        failed: list[tuple[Sequence, Exception]] = []
        for chunk in plan.chunks:
            chunk.request.sampling.rewind()
            part = BatchPlan(Phase.DECODE if len(chunk) == 1 else Phase.PREFILL, (chunk,))
            try:
                done.append((part, self._step.run(part)))
            except Exception as own:
                failed.append((chunk.request, own))
        if not done and len(failed) > 1:
            raise error
        for sequence, cause in failed:
            self._fail(sequence, _lost("its step", cause))
        return done

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
        """Take a token into the answer, and close the request if it ends it or is lost by it."""
        try:
            self._take(sequence, sampled, now)
        except Exception as error:
            self._fail(sequence, _lost(f"token {sampled.token_id}", error))
            return
        except BaseException as error:  # its answer may lack the token in part
            sequence.finish = FinishReason.ERROR
            sequence.error = str(_lost(f"token {sampled.token_id}", error))
            raise
        if sequence.finish is not None:
            self._close(sequence)

    def _take(self, sequence: Sequence, sampled: Sampled, now: float) -> None:
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
        sequence.is_refused = isinstance(error, FormError)
        self._close(sequence)

    def _close(self, sequence: Sequence) -> None:
        self._scheduler.remove(sequence, keep=sequence.finish is not FinishReason.ERROR)
        self._encoder.forget(sequence)
        sequence.timings.total_s = self._clock() - sequence.started
        if self._when_idle is not None:
            stats = self._scheduler.stats
            if not stats.waiting and not stats.running:
                self._when_idle()


def _lost(what: str, error: BaseException) -> RequestError:
    """The error of a request that lost something by code that should not have failed."""
    return RequestError(f"{what} was lost: {type(error).__name__}: {error}")


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
