"""Which requests run next: first come, first served, within pages, requests and tokens a step."""

from __future__ import annotations

from collections import deque

from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.reason import Phase
from firstlight.engine.sequence import Sequence
from firstlight.memory import PageAllocator


class Scheduler:
    """Admits requests that fit wholly, prefills them in chunks, then decodes them together.

    A request gets the pages of its longest possible context at admission, so a running request is
    never short of memory and its pages lie in one run wherever one is free.
    """

    def __init__(
        self, pages: PageAllocator, *, page_size: int, max_num_seqs: int, max_batch_tokens: int
    ) -> None:
        self._pages = pages
        self._page_size = page_size
        self._max_num_seqs = max_num_seqs
        self._max_batch_tokens = max_batch_tokens
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []

    def pages_for(self, tokens: int) -> int:
        """Pages that hold this many tokens."""
        return -(-tokens // self._page_size)

    def add(self, sequence: Sequence) -> None:
        """Queue a request; the caller has checked that it fits an empty engine."""
        self._waiting.append(sequence)

    def next_batch(self) -> BatchPlan[Sequence] | None:
        """The next step, or None when nothing is left to do. Prefill goes before decode."""
        self._admit()
        chunks = self._prefill_chunks()
        if chunks:
            return BatchPlan(Phase.PREFILL, tuple(chunks))
        if self._running:
            return BatchPlan(
                Phase.DECODE, tuple(Chunk(s, s.length - 1, s.length) for s in self._running)
            )
        return None

    def remove(self, sequence: Sequence) -> None:
        """Take a request out, finished or not, and free its pages. Unknown ones are ignored."""
        if sequence in self._running:
            self._running.remove(sequence)
        elif sequence in self._waiting:
            self._waiting.remove(sequence)
        if sequence.pages:
            self._pages.free(sequence.pages)
            sequence.pages = []

    def _admit(self) -> None:
        while self._waiting and len(self._running) < self._max_num_seqs:
            need = self.pages_for(self._waiting[0].capacity)
            if need > self._pages.n_free:
                return
            sequence = self._waiting.popleft()
            sequence.pages = self._pages.allocate(need)
            self._running.append(sequence)

    def _prefill_chunks(self) -> list[Chunk[Sequence]]:
        chunks: list[Chunk[Sequence]] = []
        room = self._max_batch_tokens
        for sequence in self._running:
            missing = len(sequence.prompt.ids) - sequence.computed
            if missing <= 0 or room == 0:
                continue
            n = min(missing, room)
            chunks.append(Chunk(sequence, sequence.computed, sequence.computed + n))
            room -= n
        return chunks
