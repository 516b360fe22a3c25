"""One static buffer that captured graphs read: its shape, and what its padding must hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import torch

from firstlight.contract import Segment
from firstlight.errors import SlotError


class Axis(Enum):
    """What a slot counts along its padded axis."""

    TOKENS = "tokens"
    REQUESTS = "requests"
    NONE = "none"


class Dim(Enum):
    """A symbolic size in a slot's shape, replaced by the capacity when memory is allocated."""

    T = "tokens"
    R = "requests"


class Padding(Enum):
    """What happens to the rows between the live batch and the bucket at every fill."""

    ZERO = "zero"  # set to 0
    SENTINEL = "sentinel"  # set to the pad value
    KEEP = "keep"  # left alone: only for what is proven never to be read
    FILL_ONCE = "fill_once"  # the whole buffer is set to the pad value at allocation, never again


class Meaning(Enum):
    """Whether the contents are data or address memory."""

    VALUE = "value"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class Extent:
    """Rows of a batch on both axes: live ones, or padded ones."""

    tokens: int
    requests: int

    def on(self, axis: Axis) -> int:
        """Rows along ``axis``; :attr:`Axis.NONE` has none, SlotError."""
        if axis is Axis.NONE:
            raise SlotError("a slot without an axis has no rows")
        return self.tokens if axis is Axis.TOKENS else self.requests


Source = Callable[[Mapping[str, torch.Tensor]], torch.Tensor | None]
Hook = Callable[[torch.Tensor, Extent, Extent], None]


@dataclass(frozen=True, slots=True)
class SlotSpec:
    """The declaration of a slot.

    Attributes:
        shape: sizes; :data:`Dim.T` or :data:`Dim.R` stands where the axis is, once.
        pad_value: what ``SENTINEL`` and ``FILL_ONCE`` write.
        copied: filled from the batch's value of the same name; False if the merge or a hook
            writes it.
        required: a batch without a value is an error. Otherwise all rows become neutral, unless
            the policy leaves rows alone.
        segments: named column ranges of the last dimension. The first is written for every live
            row; the others are neutral on all rows at every fill, until somebody writes them.
        source: where the value comes from, instead of the batch's entry of the same name.
        hook: called last at every fill with the whole buffer, the live and the padded extent.
        device: None for the registry's; a host slot names the CPU.
    """

    name: str
    shape: tuple[int | Dim, ...]
    dtype: torch.dtype
    axis: Axis
    padding: Padding = Padding.ZERO
    pad_value: float = 0
    meaning: Meaning = Meaning.VALUE
    copied: bool = True
    required: bool = True
    enabled: bool = True
    segments: tuple[Segment, ...] = ()
    source: Source | None = None
    hook: Hook | None = None
    device: torch.device | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.axis, Axis):
            raise SlotError(
                f"slot {self.name!r} has axis {self.axis!r}; known are "
                + ", ".join(str(axis) for axis in Axis)
            )
        dims = [size for size in self.shape if isinstance(size, Dim)]
        wanted = {Axis.TOKENS: [Dim.T], Axis.REQUESTS: [Dim.R], Axis.NONE: []}[self.axis]
        if dims != wanted:
            raise SlotError(
                f"slot {self.name!r} lies on the axis {self.axis.value!r}, but its shape "
                f"{self.shape} does not name that axis exactly once"
            )
        sinking = self.padding is Padding.ZERO or self.axis is Axis.NONE
        if self.meaning is Meaning.INDEX and not sinking:
            raise SlotError(
                f"the index slot {self.name!r} pads with {self.padding.value!r}; index slots pad "
                "to the sink, 0, so that a padded row never addresses live memory"
            )
        if self.segments and self.segments[-1].end != self.shape[-1]:
            raise SlotError(
                f"the segments of slot {self.name!r} end at column {self.segments[-1].end}, its "
                f"rows at {self.shape[-1]}"
            )

    @property
    def dim(self) -> int:
        """The position of the axis in the shape; -1 for :attr:`Axis.NONE`."""
        return next((i for i, size in enumerate(self.shape) if isinstance(size, Dim)), -1)

    @property
    def neutral(self) -> float:
        """What an unused row holds."""
        return self.pad_value if self.padding in (Padding.SENTINEL, Padding.FILL_ONCE) else 0

    @property
    def resets(self) -> bool:
        """Whether padding is rewritten at every fill."""
        return self.padding in (Padding.ZERO, Padding.SENTINEL)

    def sizes(self, capacity: Extent) -> tuple[int, ...]:
        """The shape with the capacity in the place of the axis."""
        named = {Dim.T: capacity.tokens, Dim.R: capacity.requests}
        return tuple(named[s] if isinstance(s, Dim) else s for s in self.shape)


@dataclass(frozen=True, slots=True)
class SlotInfo:
    """A slot as it is shown to people."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    policy: str
    meaning: str
    axis: str
