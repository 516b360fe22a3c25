"""Pages for what a step writes, taken from the youngest running requests when there are none."""

from __future__ import annotations

from typing import Generic

from firstlight.engine.scheduling.blocks import shrink
from firstlight.engine.scheduling.draft import Draft, R, Running
from firstlight.engine.scheduling.paged_memory import PagedMemory
from firstlight.engine.scheduling.queues import Queues
from firstlight.engine.scheduling.stats import Counters


class Backing(Generic[R]):
    """Gives chunks their pages, on the virtual side and on every windowed one."""

    def __init__(self, memory: PagedMemory, queues: Queues[R], counters: Counters) -> None:
        self._memory = memory
        self._queues = queues
        self._counters = counters

    def admit(self, entry: Running[R], end: int) -> int:
        """Pages for all that a new request has now, and for its first chunk up to ``end``.

        Every running request is left one page to grow into, and none gives any up.

        Returns:
            Where the chunk has to end; where it starts if there are no pages.
        """
        request, holding = entry.request, entry.request.holding
        assert holding is not None
        need = -(-request.length // self._memory.page_size) - len(holding.pages)
        if self._memory.n_free < need + len(self._queues.running):
            return request.computed
        if not self._memory.reserve(holding, request.length, request.capacity):
            return request.computed
        return self._prepare(entry, end, None)

    def extend(self, draft: Draft[R], entry: Running[R], end: int) -> int:
        """Pages for the next chunk of a running request; younger ones give theirs up for it.

        Returns:
            Where the chunk has to end; where it starts if it must sit this step out.
        """
        request, holding = entry.request, entry.request.holding
        assert holding is not None
        while not self._memory.reserve(holding, end, request.capacity):
            if not self._preempt(draft, entry):
                return request.computed
        return self._prepare(entry, end, draft)

    def _prepare(self, entry: Running[R], end: int, draft: Draft[R] | None) -> int:
        """Bind windowed pages, for a shorter chunk if need be; with a draft, preempt after that."""
        request, holding = entry.request, entry.request.holding
        assert holding is not None
        start, wanted, page_size = request.computed, end, self._memory.page_size
        while not self._memory.prepare(holding, start, end):
            shorter = shrink(request.blocks, start, end, page_size)
            if shorter > start:
                end = shorter
            elif draft is not None and self._preempt(draft, entry):
                end = wanted
            else:
                return start
        entry.backed = -(-end // page_size) * page_size
        return end

    def _preempt(self, draft: Draft[R], entry: Running[R]) -> bool:
        """Let the youngest give its pages up; False if that is the one that asks."""
        if self._queues.running[-1] is entry:
            # It keeps what it has: an older request that needs it will take it.
            draft.short = True
            self._counters.stalled += 1
            return False
        draft.drop(self._queues.preempt_youngest().request)
        self._counters.preempted += 1
        return True
