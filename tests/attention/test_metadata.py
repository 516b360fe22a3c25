"""Slots of a batch: translated by page, once, per side; what cannot be right is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch

from firstlight.attention import RowsInMemory, attention_values, slot_suffix
from firstlight.attention.metadata import Side
from firstlight.errors import SlotError
from firstlight.memory import (
    VIRTUAL_SINK,
    IdentityMap,
    KVLayout,
    PageMap,
    PhysicalPage,
    SideSpec,
    VirtualPage,
)
from firstlight.memory.page_map import translate_slots

FULL, SLIDING = SideSpec("full", None), SideSpec("window_4", 4)


def pages(*numbers: int) -> list[VirtualPage]:
    return [VirtualPage(n) for n in numbers]


def bound(pairs: dict[int, int], n_virtual: int = 64) -> PageMap:
    found = PageMap(n_virtual)
    for virtual, physical in pairs.items():
        found.bind(VirtualPage(virtual), PhysicalPage(physical))
    return found


def values(
    rows: Sequence[RowsInMemory], *, page_size: int = 4, max_pages: int = 8, sliding: PageMap
) -> dict[str, list[object]]:
    sides: list[Side] = [(FULL, IdentityMap(64)), (SLIDING, sliding)]
    found = attention_values(rows, sides=sides, page_size=page_size, max_pages=max_pages)
    return {name: value.tolist() for name, value in found.items()}


def full(rows: Sequence[RowsInMemory], *, page_size: int = 4) -> dict[str, list[object]]:
    found = attention_values(
        rows, sides=[(FULL, IdentityMap(64))], page_size=page_size, max_pages=4
    )
    return {name: value.tolist() for name, value in found.items()}


@pytest.mark.parametrize("page_size", [1, 2])
def test_a_windowed_table_holds_what_the_map_says_of_each_page(page_size: int) -> None:
    """Virtual pages 1 and 2, bound to 2 and 5: the map's entries are page numbers already.

    Had the map been taken for one by token slot, or its entries been divided by the page size
    again, both columns would differ at page size 2 and only there.
    """
    tokens = 2 * page_size
    wide = SideSpec("window_64", 64)
    sides: list[Side] = [(FULL, IdentityMap(64)), (wide, bound({1: 2, 2: 5}))]
    found = attention_values(
        [RowsInMemory(pages(1, 2), 0, tokens)], sides=sides, page_size=page_size, max_pages=3
    )
    assert found["page_table"].tolist() == [[1, 2, 0]]
    assert found["page_table.window_64"].tolist() == [[2, 5, 0]]
    by_hand = [p * page_size + i for p in (2, 5) for i in range(page_size)]
    assert found["write_locations.window_64"].tolist() == by_hand


def test_write_locations_are_the_maps_own_translation_of_token_slots() -> None:
    mapping, size = bound({7: 3, 2: 9, 4: 1}), 4
    rows = [RowsInMemory(pages(7, 2, 4), 5, 11)]
    found = attention_values(rows, sides=[(SLIDING, mapping)], page_size=size, max_pages=3)
    virtual = np.array([p * size + i for p in (7, 2, 4) for i in range(size)])[5:11]
    table = np.zeros(64, dtype=np.int32)
    table[[7, 2, 4]] = [3, 9, 1]
    assert found["write_locations.window_4"].tolist() == (
        translate_slots(table, virtual, size).tolist()
    )


def test_requests_lie_one_after_another() -> None:
    found = full([RowsInMemory(pages(3, 4), 2, 6), RowsInMemory(pages(9), 0, 1)])
    assert found["write_locations"] == [14, 15, 16, 17, 36]
    assert found["page_table"] == [[3, 4, 0, 0], [9, 0, 0, 0]]
    assert found["attention_rows"] == [[0, 4, 6, 12], [4, 1, 1, 36]]


def test_only_a_run_of_pages_gets_a_run_start() -> None:
    placed = [(4, 5, 6), (4, 6, 5), (6, 5, 4), (4, 4, 6), (5, 6, 8)]
    found = full([RowsInMemory(pages(*p), 0, 3) for p in placed], page_size=1)
    assert [row[3] for row in found["attention_rows"]] == [4, -1, -1, -1, -1]  # type: ignore[index]


def test_few_rows_of_a_prompt_are_marked_with_where_they_begin() -> None:
    placed = [(pages(4, 5), 3), (pages(6, 5), 7), (pages(7, 8), 8), (pages(9, 12), 8)]
    found = full([RowsInMemory(p, 0, end, is_prompt=True) for p, end in placed])
    # -3 less the slot, -2 without a run; eight rows are not few.
    assert [row[3] for row in found["attention_rows"]] == [-3 - 16, -2, 28, -1]  # type: ignore[index]


def test_a_window_of_few_rows_of_a_prompt_is_marked_on_its_own_side() -> None:
    sliding = bound({2: 6, 3: 7})
    found = values([RowsInMemory(pages(1, 2, 3), 9, 11, is_prompt=True)], sliding=sliding)
    assert found["attention_rows"] == [[0, 2, 11, -3 - 4]]
    assert found["attention_rows.window_4"] == [[0, 2, 11, -3 - (6 * 4 + 2)]]


def test_neighbours_in_the_batch_do_not_tear_a_run_or_join_one() -> None:
    placed = [(4, 5), (6, 7), (9, 8), (9, 10)]
    found = full([RowsInMemory(pages(*p), 0, 2) for p in placed], page_size=1)
    assert [row[3] for row in found["attention_rows"]] == [4, 6, -1, 9]  # type: ignore[index]


def test_pages_held_beyond_the_rows_do_not_count() -> None:
    found = full([RowsInMemory(pages(4, 5, 9, 2), 0, 7)])
    assert found["attention_rows"] == [[0, 7, 7, 16]]
    assert found["page_table"] == [[4, 5, 0, 0]]


def test_a_window_is_in_a_run_if_what_its_rows_see_is() -> None:
    """Rows from position 9 on see position 6 and later, so pages 1 to 2 of the request."""
    rows = [RowsInMemory(pages(1, 2, 3), 9, 11)]
    found = values(rows, sliding=bound({1: 20, 2: 7, 3: 8}))
    assert found["page_table.window_4"] == [[0, 7, 8, 0, 0, 0, 0, 0]]
    assert found["attention_rows.window_4"] == [[0, 2, 11, 7 * 4 + 2]]
    assert found["write_locations.window_4"] == [33, 34]
    torn = values(rows, sliding=bound({1: 20, 2: 7, 3: 9}))
    assert torn["attention_rows.window_4"] == [[0, 2, 11, -1]]


def test_pages_that_left_the_window_need_not_be_bound_any_more() -> None:
    found = values([RowsInMemory(pages(1, 2, 3), 11, 12)], sliding=bound({3: 5}))
    assert found["attention_rows.window_4"] == [[0, 1, 12, 20]]
    assert found["page_table"] == [[1, 2, 3, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize("lost", [2, 3])
def test_an_unbound_page_that_rows_see_or_write_is_refused(lost: int) -> None:
    sliding = bound({p: p + 10 for p in (1, 2, 3) if p != lost})
    with pytest.raises(SlotError, match=rf"virtual page {lost}, .* not bound on .* window_4"):
        values([RowsInMemory(pages(1, 2, 3), 9, 11)], sliding=sliding)


def test_a_batch_of_sinks_is_legal_on_every_side() -> None:
    rows = [RowsInMemory([VIRTUAL_SINK] * 3, 0, 9), RowsInMemory([VIRTUAL_SINK] * 3, 0, 1)]
    found = values(rows, sliding=PageMap(64))
    assert found["write_locations.window_4"] == [0, 1, 2, 3, 0, 1, 2, 3, 0, 0]
    assert found["page_table.window_4"] == [[0] * 8] * 2


@pytest.mark.parametrize(
    ("start", "end", "held", "message"),
    [
        (0, 9, 2, r"9 tokens need 3 pages of 4; the request holds 2"),
        (0, 17, 5, r"17 tokens need 5 pages of 4; .* a page table row takes 4"),
        (3, 3, 1, r"positions \[3, 3\)"),
        (-1, 2, 1, r"positions \[-1, 2\)"),
    ],
)
def test_positions_without_pages_and_requests_without_rows_are_refused(
    start: int, end: int, held: int, message: str
) -> None:
    with pytest.raises(SlotError, match=message):
        full([RowsInMemory(pages(*range(1, held + 1)), start, end)])


def test_a_page_outside_the_virtual_space_is_refused() -> None:
    with pytest.raises(IndexError):
        full([RowsInMemory(pages(64), 0, 1)])


def bounds(rows: Sequence[RowsInMemory]) -> list[list[int]]:
    found = attention_values(
        rows, sides=[(FULL, IdentityMap(64))], page_size=4, max_pages=4, prefix_lm=True
    )["block_bounds"]
    assert found.dtype is torch.int64
    answer: list[list[int]] = found.tolist()
    return answer


def test_rows_of_a_block_carry_its_bounds_and_others_their_own_position() -> None:
    first = RowsInMemory(pages(1, 2), 1, 6, blocks=[(2, 5), (8, 11)])
    second = RowsInMemory(pages(3), 0, 2, blocks=[(0, 2)])
    assert bounds([first, second]) == [[1, 2], [2, 5], [2, 5], [2, 5], [5, 6], [0, 2], [0, 2]]


@pytest.mark.parametrize("block", [(0, 3), (4, 9), (0, 9)])
def test_a_block_that_the_chunk_cuts_is_refused(block: tuple[int, int]) -> None:
    rows = [RowsInMemory(pages(1, 2, 3), 2, 6, blocks=[block])]
    with pytest.raises(SlotError, match=rf"\[{block[0]}, {block[1]}\) is cut .* \[2, 6\)"):
        bounds(rows)


def test_blocks_are_refused_where_the_model_declares_none() -> None:
    with pytest.raises(SlotError, match="declares a causal mask"):
        full([RowsInMemory(pages(1), 0, 3, blocks=[(0, 2)])])


def test_slot_names_are_those_that_graphs_register() -> None:
    from firstlight.graphs.slots import attention_slots

    layout = KVLayout.of([None, 4, 9], max_context=100)
    sides = [(spec, IdentityMap(8)) for spec in layout.sides]
    found = attention_values(
        [RowsInMemory(pages(1), 0, 3)], sides=sides, page_size=4, max_pages=2, prefix_lm=True
    )
    specs = attention_slots(2, [slot_suffix(spec) for spec in layout.sides], prefix_lm=True)
    assert {s.name: s.dtype for s in specs} == {n: v.dtype for n, v in found.items()}
