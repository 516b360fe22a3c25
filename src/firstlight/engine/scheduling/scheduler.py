"""Which requests run next, and how far: first come, first served, decodes beside prefills.

A step holds one row of every request that generates, then prefill chunks in order of arrival. The
running requests are the oldest ones: the head of the queue is admitted when a chunk of it fits the
step and its pages fit the memory, and when pages run out the youngest running request gives its own
back and is computed again later. The oldest therefore always gets on.
"""

from __future__ import annotations

from typing import Generic

from firstlight.core.plan import BatchPlan, Chunk
from firstlight.engine.scheduling.backing import Backing
from firstlight.engine.scheduling.blocks import check_blocks, cut, longest
from firstlight.engine.scheduling.draft import Draft, R, Running
from firstlight.engine.scheduling.limits import Limits, refusal
from firstlight.engine.scheduling.media import EncoderBudget
from firstlight.engine.scheduling.paged_memory import PagedMemory
from firstlight.engine.scheduling.queues import Queues
from firstlight.engine.scheduling.request import EncoderCosts
from firstlight.engine.scheduling.stats import Counters, SchedulerStats
from firstlight.errors import RequestError, SchedulerError


class Scheduler(Generic[R]):
    """Plans one step after another over one memory.

    What it promises of a request that is not removed: its chunks lie end to end and cover each
    position once per computation; a decode row sits out a step for another's block at most every
    second step, and for want of pages only while it is the youngest that runs.

    Args:
        memory: the pages of all requests.
        limits: what a step may hold.
        encoder: what a media item costs to encode now.
    """

    def __init__(self, memory: PagedMemory, limits: Limits, encoder: EncoderCosts) -> None:
        self._memory = memory
        self._limits = limits
        self._encoder = encoder
        self._windowed = any(side.window is not None for side in memory.layout.sides)
        self._queues: Queues[R] = Queues(memory)
        self._counters = Counters()
        self._backing = Backing(memory, self._queues, self._counters)
        self._first: R | None = None  # it goes before the decodes of the next step

    @property
    def stats(self) -> SchedulerStats:
        """Requests now, and counts since the start."""
        queues = self._queues
        return self._counters.freeze(waiting=len(queues.waiting), running=len(queues.running))

    @property
    def running(self) -> tuple[R, ...]:
        """The requests that hold pages, the oldest first."""
        return tuple(entry.request for entry in self._queues.running)

    def check_fits(self, capacity: int, block: int = 0) -> str | None:
        """Why a request could not be served even alone, with the numbers; None if it could.

        Args:
            capacity: tokens that prompt and answer may grow to.
            block: positions of its longest block, or 0.
        """
        return refusal(self._limits, self._memory, capacity, block)

    def add(self, request: R) -> None:
        """Queue a request in its place of arrival.

        Raises:
            RequestError: it could not be served even alone.
            ValueError: it has no token, malformed blocks, or is here already.
        """
        check_blocks(request.blocks, request.prompt_length)
        if request.length < 1:
            raise ValueError(f"request {request.arrival} has no token to compute")
        error = self.check_fits(max(request.capacity, request.length), longest(request.blocks))
        if error is not None:
            raise RequestError(error)
        self._queues.add(request)

    def remove(self, request: R, *, keep: bool = True) -> None:
        """Forget a request, waiting or running, and give its pages back. Unknown: nothing happens.

        Between a plan and its commit is as good a moment as any other.

        Args:
            keep: offer what is computed of it to later requests; False if it may be wrong.
        """
        self._queues.remove(request, keep=keep)

    def restart(self) -> list[R]:
        """Compute every request again, from its first position and in an empty memory.

        For after an exception that may have left anything here half done: a plan that is not
        committed, pages that nobody holds. Nothing generated is lost.

        Returns:
            The requests, the oldest first.
        """
        self._first = None
        return self._queues.restart()

    def next_batch(self) -> BatchPlan[R] | None:
        """The next step, with at least one row; None when there are no requests.

        Raises:
            SchedulerError: there are requests and none of them can run.
        """
        queues = self._queues
        if not queues.waiting and not queues.running:
            return None
        budget = EncoderBudget(self._encoder, self._limits.max_encoder_rows)
        draft: Draft[R] = Draft(self._limits.max_batch_tokens, budget)
        if self._first is not None:
            self._plan_first(draft)
        for entry in self._plan_decodes(draft):
            if draft.room and not entry.gone:
                self._plan_prefill(draft, entry)
        while self._may_admit(draft) and self._admit_head(draft):
            pass
        if not draft.chunks:
            raise SchedulerError(self._stuck())
        self._counters.planned(self._limits.max_batch_tokens - draft.room)
        return draft.plan()

    def commit(self, plan: BatchPlan[R]) -> None:
        """The keys and values of these chunks are in memory for whatever is computed from now on.

        A plan may have lost chunks since it was made.

        Raises:
            SchedulerError: a chunk does not begin where its request has got to.
        """
        for chunk in plan.chunks:
            request, end = chunk.request, chunk.end
            entry = self._queues.find(request)
            holding = request.holding
            if entry is None or holding is None:  # removed while the step ran
                continue
            if request.computed != chunk.start:
                raise SchedulerError(
                    f"positions [{chunk.start}, {end}) of request {request.arrival} are committed, "
                    f"but {request.computed} are computed"
                )
            request.computed = end
            if self._windowed:
                self._memory.advance(holding, end)

    def completes(self, plan: BatchPlan[R]) -> bool:
        """Whether a request's prefill ends in this plan."""
        return any(self._completed(chunk) is not None for chunk in plan.chunks)

    def publish(self, plan: BatchPlan[R]) -> None:
        """A committed plan was computed without fault: let others find the prompts it completed."""
        for chunk in plan.chunks:
            entry = self._completed(chunk)
            if entry is not None and entry.request.holding is not None:
                self._memory.publish(entry.request.holding, entry.request.key, chunk.end)
                self._queues.open = True

    def _completed(self, chunk: Chunk[R]) -> Running[R] | None:
        """The running request whose prefill ends with this chunk."""
        entry = self._queues.find(chunk.request)
        return entry if entry is not None and chunk.start < entry.target <= chunk.end else None

    def _plan_first(self, draft: Draft[R]) -> None:
        """The request whose block had no room beside the decodes of the step before."""
        request, self._first = self._first, None
        assert request is not None
        entry = self._queues.find(request)
        if entry is not None:
            if self._plan_prefill(draft, entry):
                draft.first = entry
        elif (
            self._may_admit(draft)
            and self._queues.waiting[0] is request
            and self._admit_head(draft)
        ):
            draft.first = self._queues.find(request)

    def _plan_decodes(self, draft: Draft[R]) -> list[Running[R]]:
        """One row of each request that lacks just that; returns the others, the oldest first."""
        others = []
        for entry in self._queues.running:  # it may lose its last ones on the way
            request = entry.request
            start = request.computed
            missing = request.length - start
            if entry is draft.first:
                continue
            if missing != 1 or start < entry.free_from:
                if missing > 0:
                    others.append(entry)
            elif not draft.room:
                self._counters.displaced += 1
            elif start < entry.backed or self._backing.extend(draft, entry, start + 1) > start:
                draft.chunks.append(Chunk(request, start, start + 1))
                draft.room -= 1
        return others

    def _plan_prefill(self, draft: Draft[R], entry: Running[R]) -> bool:
        """A chunk of a running request, if the step and the memory have room for one."""
        request = entry.request
        end = self._reach(draft, entry)
        if end > request.computed:
            end = self._backing.extend(draft, entry, end)
        if end == request.computed:
            draft.oldest = False
            return False
        self._take(draft, entry, end)
        return True

    def _may_admit(self, draft: Draft[R]) -> bool:
        queues = self._queues
        return (
            bool(queues.waiting)
            and draft.room > 0
            and not draft.short
            and (queues.open or not queues.running)
            and len(queues.running) < self._limits.max_num_seqs
        )

    def _admit_head(self, draft: Draft[R]) -> bool:
        """Admit the oldest waiting request with its first chunk, or leave all as it was."""
        queues = self._queues
        entry = queues.start(queues.waiting[0])
        request = entry.request
        start = request.computed
        end = self._reach(draft, entry)
        if end > start:
            end = self._backing.admit(entry, end)
            queues.open = end > start
        if end == start:
            queues.cancel(entry)
            return False
        queues.admit(entry)
        self._take(draft, entry, end)
        return True

    def _take(self, draft: Draft[R], entry: Running[R], end: int) -> None:
        request = entry.request
        if request.computed < entry.free_from:
            draft.encoder.spend(request.needs, request.computed, end)
        draft.oldest = draft.oldest and end == request.length
        draft.add(request, request.computed, end)

    def _reach(self, draft: Draft[R], entry: Running[R]) -> int:
        """Where the request's next chunk may end as far as rows, blocks and encoder go."""
        request = entry.request
        start = request.computed
        end = min(request.length, start + draft.room)
        if start >= entry.free_from:
            return end
        end = cut(request.blocks, start, end)
        if end > start:
            return cut(request.blocks, start, draft.encoder.reach(request.needs, start, end))
        if draft.oldest:  # all decodes have their rows, or there would be no room to ask about
            self._first = request
        return start

    def _stuck(self) -> str:
        """What there is to see when nothing can run."""
        queues, limits = self._queues, self._limits
        head = queues.running[0].request if queues.running else queues.waiting[0]
        return (
            f"{len(queues.running)} running and {len(queues.waiting)} waiting requests, and none "
            f"can run: {self._memory.n_free} pages are free, "
            f"max_batch_tokens = {limits.max_batch_tokens}, max_num_seqs = {limits.max_num_seqs}; "
            f"the oldest has {head.computed} of {head.length} tokens computed"
        )
