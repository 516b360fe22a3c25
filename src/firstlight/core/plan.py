"""Which positions of which requests one step computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from firstlight.core.reason import Phase

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chunk(Generic[T]):
    """Positions ``[start, end)`` of one request."""

    request: T
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class BatchPlan(Generic[T]):
    """One step: its phase and its chunks, which lie one after another in the batch's rows."""

    phase: Phase
    chunks: tuple[Chunk[T], ...]

    @property
    def tokens(self) -> int:
        """Rows of the batch."""
        return sum(len(chunk) for chunk in self.chunks)

    @property
    def max_context(self) -> int:
        """The longest context after the step, in tokens."""
        return max(chunk.end for chunk in self.chunks)
