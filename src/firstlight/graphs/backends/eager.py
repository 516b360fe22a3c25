"""The reference backend: a replay is a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from firstlight.graphs.backend import Piece
from firstlight.graphs.ownership import Ownership


@dataclass(frozen=True, slots=True)
class EagerGraph:
    """Calls the function again at every replay; holds no memory of its own."""

    fn: Callable[[], torch.Tensor]
    label: str
    seconds: float
    bytes: int = 0

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """One eager piece."""
        return (Piece("eager", self.label, 0),)

    def replay(self) -> torch.Tensor:
        """Call the function; the output is fresh memory."""
        with torch.no_grad():
            return self.fn()


class EagerBackend:
    """Captures nothing: what the other backends are compared with."""

    name = "eager"

    def capture(
        self, fn: Callable[[], torch.Tensor], *, owned: Ownership, label: str
    ) -> EagerGraph:
        """Call ``fn`` once, so that what it raises is raised here, and keep it."""
        started = time.perf_counter()
        with torch.no_grad():
            fn()
        return EagerGraph(fn, label, time.perf_counter() - started)
