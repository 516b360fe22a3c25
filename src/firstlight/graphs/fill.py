"""The views that a fill touches, made once per pair of live and padded extents and then reused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

from firstlight.graphs.slot import Axis, Extent, Hook, SlotSpec


@dataclass(frozen=True, slots=True)
class Copied:
    """A slot that takes the batch's value.

    Attributes:
        head: its live rows, which the value fills.
        whole: its padded rows, made neutral when the batch has no value; None if they are left.
    """

    spec: SlotSpec
    head: torch.Tensor
    whole: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class FillPlan:
    """What a fill does, in order: reset, copy, call hooks.

    Attributes:
        resets: views with the value that they get at every fill: padding, and columns of segments
            that nobody may have written.
        copied: slots that take values.
        hooks: hooks with their buffers.
    """

    resets: tuple[tuple[torch.Tensor, float], ...]
    copied: tuple[Copied, ...]
    hooks: tuple[tuple[Hook, torch.Tensor], ...]


def plan_fill(
    slots: Iterable[SlotSpec], buffers: Mapping[str, torch.Tensor], live: Extent, padded: Extent
) -> FillPlan:
    """The plan for the enabled ``slots``."""
    resets: list[tuple[torch.Tensor, float]] = []
    copied: list[Copied] = []
    hooks: list[tuple[Hook, torch.Tensor]] = []
    for spec in slots:
        buf = buffers[spec.name]
        if spec.hook is not None:
            hooks.append((spec.hook, buf))
        if spec.axis is Axis.NONE:
            if spec.copied:
                copied.append(Copied(spec, buf, None))
            continue
        n, end = live.on(spec.axis), padded.on(spec.axis)
        head, tail = buf.narrow(spec.dim, 0, n), buf.narrow(spec.dim, n, end - n)
        if spec.resets and end > n:
            resets.append((tail, spec.neutral))
        if spec.resets and n and len(spec.segments) > 1:
            resets.append((head[..., spec.segments[0].end :], spec.neutral))
        if spec.copied:
            whole = buf.narrow(spec.dim, 0, end) if spec.resets else None
            copied.append(Copied(spec, head, whole))
    return FillPlan(tuple(resets), tuple(copied), tuple(hooks))
