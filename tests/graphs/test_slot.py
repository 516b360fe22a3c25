"""The rules of one slot, checked where it is declared."""

from __future__ import annotations

import pytest
import torch

from firstlight.contract import Segment
from firstlight.errors import SlotError
from firstlight.graphs import Axis, Dim, Extent, Meaning, Padding, SlotSpec


def test_an_unknown_axis_is_refused() -> None:  # A1
    with pytest.raises(SlotError, match="known are"):
        SlotSpec("a", (Dim.T,), torch.int64, "rows")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "axis"),
    [((4,), Axis.TOKENS), ((Dim.R,), Axis.TOKENS), ((Dim.T, Dim.T), Axis.TOKENS),
     ((Dim.T,), Axis.NONE)],
)  # fmt: skip
def test_the_shape_names_its_axis_exactly_once(shape: tuple[int | Dim, ...], axis: Axis) -> None:
    with pytest.raises(SlotError, match="exactly once"):
        SlotSpec("a", shape, torch.int64, axis)


@pytest.mark.parametrize("padding", [Padding.SENTINEL, Padding.KEEP, Padding.FILL_ONCE])
def test_an_index_slot_pads_to_the_sink(padding: Padding) -> None:
    with pytest.raises(SlotError, match="sink"):
        SlotSpec("a", (Dim.T,), torch.int64, Axis.TOKENS, padding, -1, Meaning.INDEX)


def test_segments_fill_the_row() -> None:
    with pytest.raises(SlotError, match="end at column 8"):
        SlotSpec("a", (Dim.T, 9), torch.float32, Axis.TOKENS, segments=(Segment("s", 0, 8),))


def test_the_capacity_stands_where_the_axis_is() -> None:
    spec = SlotSpec("a", (3, Dim.T), torch.int64, Axis.TOKENS)
    assert spec.sizes(Extent(7, 2)) == (3, 7)
    assert spec.dim == 1


def test_an_extent_has_no_rows_off_its_axes() -> None:
    with pytest.raises(SlotError, match="no rows"):
        Extent(1, 1).on(Axis.NONE)


def test_unused_rows_hold_the_pad_value_only_where_the_policy_writes_it() -> None:
    def neutral(padding: Padding) -> float:
        return SlotSpec("a", (Dim.T,), torch.int64, Axis.TOKENS, padding, 9).neutral

    assert [neutral(p) for p in Padding] == [0, 9, 0, 9]
