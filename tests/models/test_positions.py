"""Positions equal transformers', and belong to the request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.errors import RequestError
from firstlight.models.positions import GridBlock, linear_positions, mrope_positions


def rope_index(family: str, blocks: list[int | tuple[int, int]]) -> tuple[np.ndarray, int]:
    """transformers' M-RoPE positions, and its first decode position, of text runs and grids."""
    import transformers

    cls: Any = {
        "qwen2_vl": transformers.Qwen2VLModel,
        "qwen2_5_vl": transformers.Qwen2_5_VLModel,
        "qwen3_vl": transformers.Qwen3VLModel,
    }[family]
    model = cls.__new__(cls)
    torch.nn.Module.__init__(model)
    vision = type("Vision", (), {"spatial_merge_size": 1, "tokens_per_second": 2})
    object.__setattr__(model, "config", type("Config", (), {"vision_config": vision}))
    types = [
        kind for b in blocks for kind in ([0] * b if isinstance(b, int) else [1] * (b[0] * b[1]))
    ]
    grids = [[1, *b] for b in blocks if not isinstance(b, int)]
    positions, delta = model.get_rope_index(
        torch.zeros(1, len(types), dtype=torch.int64),
        torch.tensor([types]),
        image_grid_thw=torch.tensor(grids) if grids else None,
    )
    return positions[:, 0].numpy(), int(delta) + len(types)


def ours(blocks: list[int | tuple[int, int]]) -> tuple[np.ndarray, int]:
    ranges, cursor = [], 0
    for b in blocks:
        rows = b if isinstance(b, int) else b[0] * b[1]
        if not isinstance(b, int):
            ranges.append(GridBlock(cursor, cursor + rows, (1, *b)))
        cursor += rows
    result = mrope_positions(cursor, ranges)
    return result.prompt, result.next


text = st.integers(1, 9)
grid = st.tuples(st.integers(1, 6), st.integers(1, 6))


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
@settings(max_examples=60, deadline=None)
@given(
    pairs=st.lists(st.tuples(text, grid), max_size=5),
    first=st.none() | grid,
    last=st.none() | text,
)
def test_mrope_positions_equal_transformers_for_images_anywhere(
    family: str,
    pairs: list[tuple[int, tuple[int, int]]],
    first: tuple[int, int] | None,
    last: int | None,
) -> None:
    blocks: list[int | tuple[int, int]] = [first] if first else []
    blocks += [part for pair in pairs for part in pair]
    blocks += [last] if last else []
    if not blocks:
        return
    expected, following = rope_index(family, blocks)
    positions, ours_following = ours(blocks)
    np.testing.assert_array_equal(positions, expected)
    assert ours_following == following


def test_adjacent_images_each_start_where_the_last_one_reached() -> None:
    # transformers merges adjacent images into one run here; each has its own grid by the rule.
    positions, following = ours([(1, 2), (2, 1)])
    assert positions.tolist() == [[0, 0, 2, 2], [0, 0, 2, 3], [0, 1, 2, 2]]
    assert following == 4


def test_text_alone_counts_up_on_every_row() -> None:
    result = mrope_positions(4, [])
    assert result.prompt.tolist() == [[0, 1, 2, 3]] * 3
    assert result.next == 4


def test_linear_positions_have_one_row() -> None:
    result = linear_positions(3)
    assert result.prompt.tolist() == [[0, 1, 2]]
    assert result.prompt.dtype == np.int64
    assert result.next == 3


@pytest.mark.parametrize(
    "block",
    [(0, 5, (1, 2, 2)), (8, 12, (1, 2, 2)), (0, 3, (1, 2, 2))],
    ids=["too many places", "beyond the prompt", "too few places"],
)
def test_a_grid_that_does_not_fit_its_range_is_refused(
    block: tuple[int, int, tuple[int, int, int]],
) -> None:
    with pytest.raises(RequestError, match="does not fit"):
        mrope_positions(10, [GridBlock(*block)])


def test_overlapping_ranges_are_refused() -> None:
    with pytest.raises(RequestError, match="after position 4"):
        mrope_positions(10, [GridBlock(0, 4, (1, 2, 2)), GridBlock(2, 6, (1, 2, 2))])
