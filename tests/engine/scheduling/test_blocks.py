from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.engine.scheduling.blocks import (
    block_around,
    check_blocks,
    cut,
    least_end,
    longest,
    shrink,
)

BLOCKS = ((4, 10), (10, 12), (20, 21))


@pytest.mark.parametrize(
    ("position", "block"),
    [(0, None), (4, None), (5, (4, 10)), (9, (4, 10)), (10, None), (11, (10, 12)), (12, None)],
)
def test_only_an_edge_strictly_inside_cuts_a_block(
    position: int, block: tuple[int, int] | None
) -> None:
    assert block_around(BLOCKS, position) == block


@pytest.mark.parametrize(
    ("start", "end", "last"),
    [(0, 3, 3), (0, 4, 4), (0, 7, 4), (0, 11, 10), (4, 9, 4), (4, 10, 10), (10, 11, 10)],
)
def test_a_chunk_is_cut_back_to_the_start_of_the_block(start: int, end: int, last: int) -> None:
    assert cut(BLOCKS, start, end) == last


@pytest.mark.parametrize(("start", "end"), [(0, 1), (3, 4), (4, 10), (10, 12), (12, 13), (20, 21)])
def test_the_shortest_chunk_is_a_token_or_a_whole_block(start: int, end: int) -> None:
    assert least_end(BLOCKS, start) == end


def test_the_longest_block_is_found() -> None:
    assert longest(BLOCKS) == 6
    assert longest(()) == 0


@pytest.mark.parametrize(
    "blocks", [((5, 5),), ((5, 3),), ((0, 4), (3, 6)), ((4, 6), (0, 2)), ((8, 11),), ((-1, 2),)]
)
def test_malformed_blocks_are_refused(blocks: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="half-open range inside the prompt"):
        check_blocks(blocks, 10)


def test_well_formed_blocks_are_not() -> None:
    check_blocks(((0, 4), (4, 10)), 10)


@given(
    st.lists(st.integers(1, 9), max_size=6),
    st.lists(st.integers(0, 9), min_size=6, max_size=6),
    st.integers(1, 60),
    st.sampled_from([1, 4, 16]),
)
def test_shrinking_ends_at_the_shortest_chunk_and_never_cuts_a_block(
    lengths: list[int], gaps: list[int], end: int, page_size: int
) -> None:
    blocks, at = [], 0
    for length, gap in zip(lengths, gaps, strict=False):
        blocks.append((at + gap, at + gap + length))
        at += gap + length
    end = max(cut(blocks, 0, end), least_end(blocks, 0))
    while (shorter := shrink(blocks, 0, end, page_size)) > 0:
        assert 0 < shorter < end
        assert block_around(blocks, shorter) is None
        end = shorter
    # A chunk within one page needs no fewer pages if it is shorter.
    assert end == least_end(blocks, 0) or end <= page_size
