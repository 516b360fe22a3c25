"""What a vision tower is to a captured graph: a body over buffers, and what fills them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

import torch
from torch import Tensor

from firstlight.models.adapter import Artifact


class Per(Enum):
    """What an input has one line for."""

    UNIT = "unit"  # a row that the tower gives, with the patches behind it; or a crop
    SEGMENT = "segment"  # a picture, or a frame of a video


class Tail(Enum):
    """What stands behind the live lines."""

    ZERO = "zero"
    LAST = "last"  # the last live line: ends of segments that hold nothing
    OWN = "own"  # each line's own number: a permutation goes on as one


@dataclass(frozen=True, slots=True)
class TowerInput:
    """One input of a tower's body.

    Attributes:
        shape: of one line.
        index: whether its values address something.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    per: Per = Per.UNIT
    tail: Tail = Tail.ZERO
    index: bool = False


@dataclass(frozen=True, slots=True)
class Load:
    """What some pictures take together: units of the tower, and segments among them."""

    units: int
    segments: int

    def __add__(self, other: Load) -> Load:
        return Load(self.units + other.units, self.segments + other.segments)


@dataclass(frozen=True, slots=True)
class Example:
    """An artifact that was made up."""

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    modality: str = "image"


class Tower(Protocol):
    """A family's tower, from what its processor gives to the rows of a prompt."""

    @property
    def unit(self) -> str:
        """What is counted, for people, e.g. ``rows of 4 patches``."""
        ...

    @property
    def budgets(self) -> tuple[int, ...]:
        """The units that graphs are captured for if nobody says otherwise."""
        ...

    @property
    def inputs(self) -> Sequence[TowerInput]:
        """Of the body; the first one holds pixels."""
        ...

    def load(self, artifact: Artifact) -> Load | str:
        """What one artifact takes, or why it cannot go through a graph."""
        ...

    def values(self, artifacts: Sequence[Artifact]) -> dict[str, Tensor]:
        """The inputs of some artifacts behind one another, by name."""
        ...

    def body(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """``[units, ...]``; reads no value on the host, so that a graph can hold it."""
        ...

    def split(self, output: Tensor, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """``[rows, W]`` of each artifact."""
        ...

    def example(self, parts: Sequence[int], seed: int) -> list[Artifact]:
        """Artifacts of noise that take so many units each."""
        ...
