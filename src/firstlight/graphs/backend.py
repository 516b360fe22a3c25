"""What a capture backend and a captured graph offer; runners know no more than this."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from firstlight.graphs.ownership import Ownership


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a graph in replay order: ``graph`` parts are replayed, ``eager`` ones called."""

    kind: str
    label: str
    ops: int


@runtime_checkable
class Graph(Protocol):
    """A captured body: same shapes, same addresses, no model code at replay."""

    @property
    def bytes(self) -> int:
        """Memory that exists for this graph alone."""
        ...

    @property
    def seconds(self) -> float:
        """How long the capture took."""
        ...

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The parts in replay order."""
        ...

    def replay(self) -> torch.Tensor:
        """Run on what the slots hold now.

        Returns:
            The output captured; its memory is overwritten by the next replay of any graph that
            shares the arena.
        """
        ...


@runtime_checkable
class CaptureBackend(Protocol):
    """Turns a function over static buffers into a :class:`Graph`."""

    @property
    def name(self) -> str:
        """The name users choose it by: ``eager``, ``tape``, ``cuda``."""
        ...

    def capture(self, fn: Callable[[], torch.Tensor], *, owned: Ownership, label: str) -> Graph:
        """Run ``fn`` once and keep what it did.

        Raises:
            CaptureError: ``fn`` cannot be captured; names the op and the source line.
        """
        ...
