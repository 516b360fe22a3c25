"""The handle over slots: which side a layer reads, and which rows are last."""

from __future__ import annotations

import pytest

from firstlight.attention import AttentionLayer
from firstlight.errors import SlotError
from tests.attention.oracle import Whole
from tests.attention.paged import Paged


def paged() -> Paged:
    return Paged([Whole.random(9, seed=1), Whole.random(6, seed=2)], page_size=4, windows=(0, 3))


def test_a_layer_whose_window_is_not_that_of_its_side_is_refused() -> None:
    memory = paged()
    context = memory.context([(0, 0, 3)], rows=3, requests=1)
    whole = memory.requests[0]
    with pytest.raises(SlotError, match=r"layer 1 asks for a window of 5; .* side window_3"):
        context.attend(AttentionLayer(1, 1.0, 5), whole.q[:3], whole.k[:3], whole.v[:3])


def test_last_rows_are_those_of_the_last_positions_and_0_where_unused() -> None:
    context = paged().context([(0, 2, 9), (1, 5, 6)], rows=12, requests=4)
    assert context.last_rows().tolist() == [6, 7, 0, 0]


def test_the_scale_is_the_layers_own() -> None:
    memory = paged()
    whole = memory.requests[0]
    context = memory.context([(0, 0, 9)], rows=9, requests=1)
    out = context.attend(AttentionLayer(0, 0.9), whole.q, whole.k, whole.v)
    assert (out - whole.attention(scale=0.9)).abs().max() < 2e-6
    assert (out - whole.attention()).abs().max() > 1e-2
