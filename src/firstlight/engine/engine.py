"""The loop: requests in, steps until they are finished, completions out.

A step is issued and then lands: its tokens arrive on the host and are taken into the answers. In
step, it lands at once. One step late, the next one is planned and issued first, so that a GPU does
not wait for the host between them; it takes the tokens that have not arrived from the device. A
step lands at once there, too, where the next one depends on what it brings: see :meth:`_issue`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator

from firstlight.core.output import Completion, FinishReason, Usage
from firstlight.core.plan import BatchPlan
from firstlight.core.reason import Decision, Phase
from firstlight.core.timing import StepRecord
from firstlight.engine.encoder import Encoder
from firstlight.engine.flight import Flight, Part, needs_its_tokens
from firstlight.engine.scheduling import Scheduler
from firstlight.engine.sequence import Drawn, Sequence
from firstlight.engine.step import Step
from firstlight.engine.turns import Turns
from firstlight.errors import FormError, RequestError
from firstlight.sampling import Sampled

Clock = Callable[[], float]


class Engine:
    """Runs sequences to their end. What fails for one request ends that request alone.

    After an exception that is not one request's (an interrupt, say) the requests that are left are
    computed again, in an empty memory, and go on where they were.

    Args:
        stop_ids: tokens that end an answer.
        when_idle: called whenever the last request has left, e.g. to check the memory.
        overlap: whether a step may be issued before the tokens of the last one have arrived.

    Attributes:
        landed: steps whose tokens were taken.
        landed_rows: rows of the last one.
        wasted_rows: rows that were computed for requests that had ended by the time their tokens
            arrived.
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
        overlap: bool = False,
    ) -> None:
        self._scheduler = scheduler
        self._encoder = encoder
        self._step = step
        self._stop_ids = stop_ids
        self._clock = clock
        self._when_idle = when_idle
        self._overlap = overlap
        self._flights: deque[Flight] = deque()
        self._arrived = -math.inf  # when the last step did
        self.landed = self.landed_rows = self.wasted_rows = 0
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
        """Issue one batch, land one, or both: never two, since whoever waits for the tokens of the
        first has to get them before the second is waited for.

        Returns:
            False if there was nothing to do.

        Raises:
            BusyError: another thread is in a step of this engine.
        """
        with self._turns.take():
            if self._flights and not self._flights[0].may_stay:
                self._land(self._flights.popleft())
                return True
            plan = self._scheduler.next_batch()
            if plan is None:
                return False
            self._issue(plan)
            if len(self._flights) > 1 or (self._flights and not self._flights[0].may_stay):
                self._land(self._flights.popleft())
            return True

    def run(self, sequences: list[Sequence]) -> Iterator[None]:
        """Add the sequences and step until all are finished, one step per item.

        Nothing is half done when it is yielded, though a step may be under way: other runs may make
        steps of their own in between, with these sequences in them.

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
        self._flights.clear()
        self._encoder.reset()
        for sequence in self._scheduler.restart():
            sequence.media.clear()
            sequence.forget_pending()
            sequence.sampling.rewind()
            if sequence.finish is not None:
                self._scheduler.remove(sequence)
                sequence.timings.total_s = self._clock() - sequence.started

    def _issue(self, plan: BatchPlan[Sequence]) -> None:
        """Encode, run and book a batch."""
        plan = self._encode(plan)
        if not plan.chunks:
            return
        began = self._clock()
        parts = self._run(plan)
        decoding = frozenset(id(c.request) for c in plan.chunks if c.request.sampling.drawn)
        for part in parts:
            self._book(part)
        self._flights.append(Flight(tuple(parts), began, decoding, self._can_wait_for(parts)))

    def _can_wait_for(self, parts: list[Part]) -> bool:
        """Whether the next step may be planned and issued before these batches have arrived.

        Not if a prompt is completed in them: its first token is what counts, and its pages are what
        others may begin with. Nor if something needs their tokens.
        """
        return self._overlap and not any(
            len(parts) > 1 or self._scheduler.completes(part.plan) or needs_its_tokens(part)
            for part in parts
        )

    def _book(self, part: Part) -> None:
        """What comes next is planned behind this batch."""
        self._scheduler.commit(part.plan)
        self._encoder.done(part.plan)
        for chunk in part.plan.chunks:
            if chunk.request.cached_tokens is None:
                chunk.request.cached_tokens = chunk.start
        for row, sequence in enumerate(part.result.requests):
            sequence.pend(Drawn(part.result.draws.ids, row))

    def _run(self, plan: BatchPlan[Sequence]) -> list[Part]:
        """Run the step; if it fails, find out for which of its requests it does."""
        try:
            return [Part(plan, self._step.run(plan))]
        except Exception as error:
            return self._run_apart(plan, error)

    def _run_apart(self, plan: BatchPlan[Sequence], error: Exception) -> list[Part]:
        """Each request by itself. Whoever fails alone, too, ends with that error.

        What is under way lands before: a request that ends by it has no part in this any more.

        Raises:
            Exception: ``error``, if it can concern only one request, or if none of several can run:
                that is no request's doing.
        """
        while self._flights:
            self._land(self._flights.popleft())
        chunks = [chunk for chunk in plan.chunks if chunk.request.finish is None]
        stats = self._scheduler.stats
        if chunks and stats.waiting + stats.running == 1:
            raise error  # to the only one whom it may concern
        parts: list[Part] = []
        failed: list[tuple[Sequence, Exception]] = []
        for chunk in chunks:
            chunk.request.sampling.rewind()
            alone = BatchPlan(Phase.DECODE if len(chunk) == 1 else Phase.PREFILL, (chunk,))
            try:
                parts.append(Part(alone, self._step.run(alone)))
            except Exception as own:
                failed.append((chunk.request, own))
        if not parts and len(failed) > 1:
            raise error
        for sequence, cause in failed:
            self._fail(sequence, _lost("its step", cause))
        return parts

    def _land(self, flight: Flight) -> None:
        """Take the tokens of a step into the answers, once they are there."""
        ended = flight.ended
        arrived = [(part, part.result.wait()) for part in flight.parts]
        now = self._clock()
        seconds, self._arrived = now - max(flight.began, self._arrived), now
        for part, sampled in arrived:
            # What a failed request computed is as suspect as what made it fail: it leaves before
            # the rest is offered to the prefix cache.
            for sequence, token in sampled:
                if token.error is not None and sequence.finish is None:
                    self._fail(sequence, token.error)
            self._scheduler.publish(part.plan)
            for chunk in part.plan.chunks:
                request = chunk.request
                if id(request) not in ended:
                    decoding = id(request) in flight.decoding
                    decision = part.result.decision
                    self._account(request, len(chunk), seconds, decision, decoding=decoding)
        for _, sampled in arrived:
            for sequence, token in sampled:
                if id(sequence) in ended:
                    self.wasted_rows += 1
                elif token.error is None:
                    self._commit(sequence, token, now)
        self.landed, self.landed_rows = self.landed + 1, flight.rows

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
            sequence.forget_pending()
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
        while self._flights and not self._flights[-1].is_wanted:
            self.wasted_rows += self._flights.pop().tokens  # nobody waits for it
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
