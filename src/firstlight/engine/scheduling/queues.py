"""The waiting and the running requests, both in order of arrival, and what the running ones hold.

Every running request arrived before every waiting one, except while a latecomer with an earlier
place waits to be admitted.
"""

from __future__ import annotations

from bisect import insort
from typing import Generic

from firstlight.engine.scheduling.blocks import block_around
from firstlight.engine.scheduling.draft import R, Running
from firstlight.engine.scheduling.paged_memory import PagedMemory


class Queues(Generic[R]):
    """Moves requests between the queues, with their pages.

    Attributes:
        waiting: requests without pages, the oldest first.
        running: requests with pages, the oldest first.
        open: whether admitting the head may succeed: False from a failed try or a preemption until
            a request leaves or completes its prefill. Nothing else gives pages back.
    """

    def __init__(self, memory: PagedMemory) -> None:
        self._memory = memory
        self._known: dict[R, Running[R] | None] = {}
        self.waiting: list[R] = []
        self.running: list[Running[R]] = []
        self.open = True

    def find(self, request: R) -> Running[R] | None:
        """What is remembered of a running request; None if it does not run."""
        return self._known.get(request)

    def add(self, request: R) -> None:
        """Let a request wait.

        Raises:
            ValueError: it is here already.
        """
        if request in self._known:
            raise ValueError(f"request {request.arrival} has been added already")
        self._wait(request)

    def start(self, request: R) -> Running[R]:
        """Hold what is cached of the oldest waiting request, which waits on.

        At least one token is left to compute, since its logits are wanted.
        """
        limit = request.length - 1
        while True:
            holding = self._memory.start(request.key, limit, request.capacity)
            block = block_around(request.blocks, holding.cached)
            if block is None:
                break
            self._memory.release(holding)
            limit = block[0]
        request.holding, request.computed = holding, holding.cached
        return Running.of(request)

    def cancel(self, entry: Running[R]) -> None:
        """Take :meth:`start` back."""
        self._give_back(entry.request)
        entry.request.computed = 0

    def admit(self, entry: Running[R]) -> None:
        """Let the oldest waiting request run."""
        del self.waiting[0]
        self._known[entry.request] = entry
        insort(self.running, entry, key=lambda e: e.request.arrival)

    def preempt_youngest(self) -> Running[R]:
        """Take the pages of the youngest running request; it waits to be computed again."""
        entry = self.running.pop()
        request = entry.request
        entry.gone = True
        self._publish(request)
        self._give_back(request)
        request.computed = 0
        self._wait(request)
        self.open = False
        return entry

    def restart(self) -> list[R]:
        """Let all requests wait, in an empty memory; which requests there are is all that is
        believed of what was there before.

        Returns:
            The requests, the oldest first.
        """
        self._memory.reset()
        self.waiting = sorted(self._known, key=lambda r: r.arrival)
        self.running = []
        self._known = dict.fromkeys(self.waiting)
        for request in self.waiting:
            request.holding, request.computed = None, 0
        self.open = True
        return list(self.waiting)

    def remove(self, request: R, *, keep: bool) -> None:
        """Forget a request. ``keep``: offer what is computed of it to later ones."""
        if request not in self._known:
            return
        entry = self._known.pop(request)
        if entry is None:
            index = next(i for i, other in enumerate(self.waiting) if other is request)
            del self.waiting[index]
        else:
            self.running.remove(entry)
            if keep:
                self._publish(request)
            self._give_back(request)
        self.open = True

    def _wait(self, request: R) -> None:
        self._known[request] = None
        insort(self.waiting, request, key=lambda r: r.arrival)
        if self.waiting[0] is request:
            self.open = True  # what the head before it lacked says nothing about this one

    def _publish(self, request: R) -> None:
        if request.holding is not None:
            self._memory.publish(request.holding, request.key, request.computed)

    def _give_back(self, request: R) -> None:
        if request.holding is not None:
            self._memory.release(request.holding)
            request.holding = None
