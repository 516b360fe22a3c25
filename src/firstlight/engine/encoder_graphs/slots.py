"""The slots of a tower's body."""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.graphs import Axis, Dim, Extent, Meaning, SlotSpec
from firstlight.models.tower import Per, Tail, TowerInput


def slot_of(given: TowerInput) -> SlotSpec:
    """One input as a slot; what stands behind its live lines is written at every fill."""
    per_unit = given.per is Per.UNIT
    return SlotSpec(
        f"encoder.{given.name}",
        (Dim.T if per_unit else Dim.R, *given.shape),
        given.dtype,
        Axis.TOKENS if per_unit else Axis.REQUESTS,
        meaning=Meaning.INDEX if given.index else Meaning.VALUE,
        hook=_HOOKS.get(given.tail, {}).get(given.per),
    )


def named(values: dict[str, Tensor]) -> dict[str, Tensor]:
    """Values of a tower under the names of their slots."""
    return {f"encoder.{name}": value for name, value in values.items()}


def unnamed(views: dict[str, Tensor]) -> dict[str, Tensor]:
    """Views of slots under the names that a tower knows."""
    return {name.removeprefix("encoder."): view for name, view in views.items()}


def _last_unit(buffer: Tensor, live: Extent, padded: Extent) -> None:
    _repeat(buffer, live.tokens, padded.tokens)


def _last_segment(buffer: Tensor, live: Extent, padded: Extent) -> None:
    _repeat(buffer, live.requests, padded.requests)


def _repeat(buffer: Tensor, live: int, padded: int) -> None:
    if live:
        buffer[live:padded] = buffer[live - 1]


def _own(buffer: Tensor, live: Extent, padded: Extent) -> None:
    numbers = torch.arange(live.tokens, padded.tokens, dtype=buffer.dtype, device=buffer.device)
    buffer[live.tokens : padded.tokens] = numbers


_HOOKS = {
    Tail.LAST: {Per.UNIT: _last_unit, Per.SEGMENT: _last_segment},
    Tail.OWN: {Per.UNIT: _own},
}
