"""The slots that recurrent layers read: running states, and where a step leaves checkpoints.

Designed and tested ahead of the models that need them; see ``docs/memory.md``.
"""

from __future__ import annotations

import torch

from firstlight.graphs.slot import Axis, Dim, Meaning, Padding, SlotSpec

STATE_INDICES = "state_indices"
TRACK_INDICES = "track_indices"
TRACK_MASK = "track_mask"
TRACK_SEQLENS = "track_seqlens"


def state_slots(*, tracking: bool) -> list[SlotSpec]:
    """``state_indices`` int64 [B] and, with ``tracking``, where checkpoints go.

    ``track_indices`` int64 [B] state slots, ``track_mask`` bool [B] whether a row writes one,
    ``track_seqlens`` int32 [B] after how many tokens of its request. All are neutral -- sink, False
    and 0 -- on the rows of requests that a batch does not have, at every fill and in both phases:
    a destination left from an earlier batch would overwrite somebody's checkpoint. The mask counts
    as an index, since it decides what is written.

    Args:
        tracking: whether the prefix cache is on, and nothing else: a batch that brings no tracking
            values where there are such slots is an error, and no silent loss of checkpoints.
    """
    slots = [_per_request(STATE_INDICES, torch.int64)]
    if tracking:
        slots += [
            _per_request(TRACK_INDICES, torch.int64),
            _per_request(TRACK_MASK, torch.bool),
            _per_request(TRACK_SEQLENS, torch.int32),
        ]
    return slots


def _per_request(name: str, dtype: torch.dtype) -> SlotSpec:
    # An index slot pads to 0 or is refused by SlotSpec.
    return SlotSpec(
        name, (Dim.R,), dtype, Axis.REQUESTS, padding=Padding.ZERO, meaning=Meaning.INDEX
    )
