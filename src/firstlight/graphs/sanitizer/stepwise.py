"""What the sanitizer needs of a replay, be its steps operations or pieces of a graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from torch import Tensor

from firstlight.graphs.sanitizer.trouble import Trouble


class Stage(Protocol):
    """One step of a replay; reads and writes are indices of storages."""

    @property
    def name(self) -> str:
        """What it is called in a finding."""
        ...

    @property
    def where(self) -> str:
        """The source line; empty if unknown."""
        ...

    @property
    def reads(self) -> Sequence[int]:
        """Storages that it reads."""
        ...

    @property
    def writes(self) -> Sequence[int]:
        """Storages that it writes."""
        ...


Watch = Callable[[int], None]
"""Called with the number of each step when it is done."""


class Stepwise(Protocol):
    """A captured graph that can be run step by step."""

    @property
    def output(self) -> Tensor:
        """The captured output."""
        ...

    @property
    def stages(self) -> Sequence[Stage]:
        """The steps, in order."""
        ...

    @property
    def leaving(self) -> Collection[int]:
        """Storages through which anything leaves the graph: its output, and memory of others."""
        ...

    def run(self, *, poison: bool, watch: Watch | None = None) -> Trouble | None:
        """Replay once.

        Args:
            poison: intermediates start as poison.

        Returns:
            the exception of a step, or a write into memory that was nobody's.
        """
        ...

    def results(self, step: int) -> list[Tensor]:
        """The intermediates that a step writes and somebody reads."""
        ...

    def writer_of(self, name: str, pool: Tensor) -> tuple[str, str] | None:
        """The first step that writes a pool of the owner ``name``, with its line."""
        ...
