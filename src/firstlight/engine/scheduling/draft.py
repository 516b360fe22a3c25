"""One step while it is planned, and what is remembered of a running request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.reason import Phase
from firstlight.engine.scheduling.media import EncoderBudget, media_end
from firstlight.engine.scheduling.request import Schedulable

R = TypeVar("R", bound=Schedulable)


@dataclass(slots=True, eq=False)
class Running(Generic[R]):
    """A request that holds pages.

    Attributes:
        free_from: the position from which on it has neither media nor blocks.
        target: its length when it was admitted; its prefill ends there.
        backed: positions up to here are known to have their pages, on every side.
        gone: it was preempted while this step was planned.
    """

    request: R
    free_from: int
    target: int
    backed: int = 0
    gone: bool = False

    @classmethod
    def of(cls, request: R) -> Running[R]:
        """A request on its admission."""
        blocks = request.blocks
        end = max(media_end(request.needs), blocks[-1][1] if blocks else 0)
        return cls(request, end, request.length)


class Draft(Generic[R]):
    """The chunks of a step so far, and how many rows and encoded rows are left.

    Attributes:
        room: rows that the step can still take.
        first: the request that was planned before the decodes, if one was.
        oldest: whoever is planned now is the oldest whose prefill this step does not complete.
        short: a running request found no page, so that nobody may be admitted.
    """

    def __init__(self, room: int, encoder: EncoderBudget) -> None:
        self.room = room
        self.encoder = encoder
        self.first: Running[R] | None = None
        self.oldest = True
        self.short = False
        self.chunks: list[Chunk[R]] = []

    def add(self, request: R, start: int, end: int) -> None:
        """Plan positions ``[start, end)``."""
        self.chunks.append(Chunk(request, start, end))
        self.room -= end - start

    def drop(self, request: R) -> None:
        """Forget the chunk of a request, if it has one."""
        for index, chunk in enumerate(self.chunks):
            if chunk.request is request:
                del self.chunks[index]
                self.room += len(chunk)
                return

    def plan(self) -> BatchPlan[R]:
        """The step: a decode if every chunk is one row, else a prefill."""
        chunks = tuple(self.chunks)
        wide = any(chunk.end - chunk.start != 1 for chunk in chunks)
        return BatchPlan(Phase.PREFILL if wide else Phase.DECODE, chunks)
