"""Tracking slots: what a row of no request holds never addresses anybody's state."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from firstlight.errors import SlotError
from firstlight.graphs import Arena, Axis, Dim, Extent, Meaning, Padding, SlotRegistry, SlotSpec
from firstlight.graphs.state_slots import (
    STATE_INDICES,
    TRACK_INDICES,
    TRACK_MASK,
    TRACK_SEQLENS,
    state_slots,
)
from firstlight.memory.state import StateHolding, StateSlot, Track, tracking_values

CAPACITY = Extent(32, 4)


def registry_of(*, tracking: bool = True) -> SlotRegistry:
    registry = SlotRegistry(CAPACITY, Arena())
    for spec in state_slots(tracking=tracking):
        registry.register(spec)
    registry.allocate()
    return registry


def values_of(*rows: tuple[int, int | None]) -> dict[str, Tensor | None]:
    """One row per request: its slot and the slot of its checkpoint, if it has one."""
    holdings = [
        StateHolding(
            StateSlot(slot), 0, None, 9, None if track is None else Track(StateSlot(track), 8)
        )
        for slot, track in rows
    ]
    return {name: torch.from_numpy(v) for name, v in tracking_values(holdings).items()}


def extent(requests: int) -> Extent:
    return Extent(8, requests)


def replay(registry: SlotRegistry, states: Tensor, padded: int) -> None:
    """What a captured body does with its rows: advance each state, and copy those tracked."""
    rows = {name: registry.view(name, extent(padded)) for name in registry.names}
    for row in range(padded):
        states[rows[STATE_INDICES][row]] += 1
        if rows[TRACK_MASK][row]:
            states[rows[TRACK_INDICES][row]] = states[rows[STATE_INDICES][row]]


def test_the_slots_have_the_shapes_and_types_of_their_values() -> None:
    slots = {info.name: (info.shape, info.dtype) for info in registry_of().describe()}
    assert slots == {
        "state_indices": ((4,), "int64"),
        "track_indices": ((4,), "int64"),
        "track_mask": ((4,), "bool"),
        "track_seqlens": ((4,), "int32"),
    }
    assert set(slots) == set(tracking_values([]))


def test_every_slot_has_the_meaning_of_an_index_and_pads_to_the_sink() -> None:
    for spec in state_slots(tracking=True):
        assert (spec.meaning, spec.padding, spec.axis, spec.neutral) == (
            Meaning.INDEX, Padding.ZERO, Axis.REQUESTS, 0,
        )  # fmt: skip


@pytest.mark.parametrize("live", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("padded", [1, 2, 3, 4])
def test_rows_of_requests_that_are_not_there_are_neutral_whatever_was_there(
    live: int, padded: int
) -> None:
    """Reference §7: mask, indices and lengths, in any bucket, after any batch."""
    if live > padded:
        return
    registry = registry_of()
    for name in registry.names:
        registry.buffer(name).fill_(1)
    registry.fill(values_of(*[(5, 6)] * live), extent(live), extent(padded))
    for name in registry.names:
        row = registry.view(name, extent(padded))
        assert not row[live:].any(), name
        assert row[:live].all(), name


def test_a_stale_destination_overwrites_no_checkpoint() -> None:
    """sglang 34184: batch one tracks into slot 6; batch two has no second request."""
    registry, states = registry_of(), torch.zeros(8)
    registry.fill(values_of((1, None), (2, 6)), extent(2), extent(2))
    replay(registry, states, 2)
    checkpoint = states[6].clone()
    assert checkpoint == 1
    registry.fill(values_of((1, None)), extent(1), extent(2))
    replay(registry, states, 2)
    assert states[6] == checkpoint
    assert states[2] == 1


def test_a_tracking_slot_that_keeps_its_padding_cannot_be_declared() -> None:
    """sglang 34184: its policy left the rows of unused requests as they were."""
    with pytest.raises(SlotError, match="index slots pad to the sink"):
        SlotSpec(
            TRACK_MASK, (Dim.R,), torch.bool, Axis.REQUESTS, Padding.KEEP, meaning=Meaning.INDEX
        )


@pytest.mark.parametrize("missing", [TRACK_INDICES, TRACK_MASK, TRACK_SEQLENS])
def test_a_batch_that_brings_no_tracking_is_an_error_and_not_a_lost_checkpoint(
    missing: str,
) -> None:
    """sglang 32606: tracking was not wired, and states were wrong in silence."""
    registry = registry_of()
    values = values_of((1, 6))
    del values[missing]
    with pytest.raises(SlotError, match=f"no value for the slot '{missing}'"):
        registry.fill(values, extent(1), extent(1))


def test_without_a_prefix_cache_there_is_nothing_to_track() -> None:
    assert registry_of(tracking=False).names == (STATE_INDICES,)


def test_before_a_capture_all_rows_are_neutral() -> None:
    registry = registry_of()
    registry.fill(values_of(*[(3, 6)] * 4), extent(4), extent(4))
    registry.neutralise(extent(4))
    states = torch.zeros(8)
    replay(registry, states, 4)
    assert np.flatnonzero(states.numpy()).tolist() == [0]
