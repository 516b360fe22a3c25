"""Other legal contents for the slots than those of a capture."""

from __future__ import annotations

from collections.abc import Callable

import torch

from firstlight.core.reason import Phase
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Axis, Extent, Meaning
from firstlight.graphs.slots import BLOCK_BOUNDS, attention_names


def vary_slots(
    registry: SlotRegistry, padded: Extent, phase: Phase, plan: Callable[[int], None] | None
) -> None:
    """Random values, index 1 everywhere, and metadata of a batch of half the rows.

    Args:
        plan: writes attention metadata for a number of rows.
    """
    registry.neutralise(padded)
    generator = torch.Generator("cpu").manual_seed(1)
    planned = {BLOCK_BOUNDS, *(n for side in attention_names(registry.names) for n in side.all)}
    for name in registry.names:
        spec = registry.spec(name)
        if name in planned or spec.axis is Axis.NONE:
            continue
        rows = registry.view(name, padded)
        if spec.meaning is Meaning.INDEX:
            rows.fill_(1)
        elif rows.dtype.is_floating_point:
            rows.copy_(torch.randn(rows.shape, generator=generator, device=generator.device))
    half = max(padded.tokens // 2, 1)
    if plan is not None:
        plan(half)
    live = Extent(half, half if phase is Phase.DECODE else 1)
    for name in registry.names:
        hook = registry.spec(name).hook
        if hook is not None:
            hook(registry.buffer(name), live, padded)
