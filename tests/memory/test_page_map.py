"""The rules by which virtual pages become physical ones, with the published worked example.

Two virtual pages of one request lie at pages 2 and 5 of the sliding side. Whatever the page size,
the full side's table reads [[0, 1]] and the sliding side's [[2, 5]].
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.memory import IdentityMap, PageMap, PhysicalPage, Translation, VirtualPage
from firstlight.memory.page_map import translate_pages, translate_slots

SLIDING = np.array([2, 5], dtype=np.int32)


def _slots_of_request(page_size: int) -> np.ndarray:
    """The virtual token slots of two full pages: [0, 1] at P = 1, [0, 1, 2, 3] at P = 2."""
    return np.arange(2 * page_size)[None]


def _virtual_pages(page_size: int) -> np.ndarray:
    """The page table's columns: the page of every P-th token slot."""
    return _slots_of_request(page_size)[:, ::page_size] // page_size


@pytest.mark.parametrize("page_size", [1, 2, 16, 128])
def test_the_worked_example_reads_the_same_at_every_page_size(page_size: int) -> None:
    pages = _virtual_pages(page_size)
    assert IdentityMap(2).translate(pages).tolist() == [[0, 1]]
    assert translate_pages(SLIDING, pages).tolist() == [[2, 5]]


def test_token_slots_where_pages_belong_go_unnoticed_at_page_size_1_only() -> None:
    def fed_slots(page_size: int) -> np.ndarray:
        return translate_pages(SLIDING, _slots_of_request(page_size)[:, ::page_size])

    assert fed_slots(1).tolist() == [[2, 5]]
    with pytest.raises(IndexError):
        fed_slots(2)  # column 1 asks for entry 2 of two


def test_a_second_shift_gives_other_pages_at_page_size_2() -> None:
    right = translate_pages(SLIDING, _virtual_pages(2))
    assert (right // 2).tolist() == [[1, 2]]
    assert right.tolist() == [[2, 5]]


def test_a_stride_of_zero_would_read_the_first_page_in_every_column() -> None:
    slots = _slots_of_request(2)[0]
    columns = np.lib.stride_tricks.as_strided(slots, shape=(2,), strides=(0,))
    assert translate_pages(SLIDING, columns // 2).tolist() == [2, 2]
    assert (translate_pages(SLIDING, columns // 2) // 2).tolist() == [1, 1]


@pytest.mark.parametrize("page_size", [1, 2, 16])
def test_the_token_form_agrees_with_the_page_form(page_size: int) -> None:
    slots = translate_slots(SLIDING, _slots_of_request(page_size), page_size)
    expected = [page * page_size + offset for page in (2, 5) for offset in range(page_size)]
    assert slots.tolist() == [expected]
    assert (slots[:, ::page_size] // page_size).tolist() == [[2, 5]]


def _map(n_virtual: int = 6) -> PageMap:
    pages = PageMap(n_virtual)
    pages.bind(VirtualPage(1), PhysicalPage(2))
    pages.bind(VirtualPage(2), PhysicalPage(5))
    return pages


def test_dead_entries_unbound_pages_and_tombstones_read_the_sink() -> None:
    pages = _map()
    assert pages.translate(np.array([[1, 2, -1, 0, 4]])).tolist() == [[2, 5, 0, 0, 0]]
    assert pages.unbind(VirtualPage(2)) == 5
    assert pages.translate(np.array([1, 2])).tolist() == [2, 0]
    assert pages.physical(VirtualPage(2)) == 0
    assert pages.physical(VirtualPage(-1)) == 0
    assert translate_pages(np.array([0, -1]), np.array([1])).tolist() == [0]


def test_dead_slots_read_the_sinks_page() -> None:
    assert _map().translate_slots(np.array([-1, 4, 5, 12]), 4).tolist() == [0, 8, 9, 0]
    assert IdentityMap(6).translate_slots(np.array([-1, 4, 5]), 4).tolist() == [0, 4, 5]


@pytest.mark.parametrize("table", [IdentityMap(6), _map()])
def test_the_map_covers_the_virtual_space_and_nothing_beyond(table: Translation) -> None:
    # The sliding side may own far fewer pages than there are ids; any id can be asked for.
    assert table.n_virtual == 6
    table.translate(np.arange(6))
    table.translate_slots(np.arange(6 * 4), 4)
    table.physical(VirtualPage(5))
    for beyond in (
        lambda: table.translate(np.array([6])),
        lambda: table.translate_slots(np.array([24]), 4),
        lambda: table.physical(VirtualPage(6)),
    ):
        with pytest.raises(IndexError):
            beyond()


def test_page_tables_are_int32_and_write_locations_int64() -> None:
    for table in (IdentityMap(6), _map()):
        assert table.translate(np.arange(4)).dtype == np.int32
        assert table.translate_slots(np.arange(4), 4).dtype == np.int64
        assert table.translate(np.zeros((2, 0), np.int64)).shape == (2, 0)


def test_binding_twice_unbinding_twice_and_binding_a_sink_are_refused() -> None:
    pages = _map()
    with pytest.raises(ValueError, match="bound to 2 already"):
        pages.bind(VirtualPage(1), PhysicalPage(3))
    with pytest.raises(ValueError, match="not bound"):
        pages.unbind(VirtualPage(3))
    for virtual, physical in ((0, 3), (3, 0), (6, 3), (-1, 3)):
        with pytest.raises(ValueError, match="cannot be bound"):
            pages.bind(VirtualPage(virtual), PhysicalPage(physical))
    assert pages.bound() == {1: 2, 2: 5}


@given(
    st.dictionaries(st.integers(1, 40), st.integers(1, 30), max_size=20),
    st.lists(st.integers(-2, 40), max_size=30),
    st.sampled_from([1, 2, 16, 32, 128]),
)
def test_whole_tables_say_what_single_entries_say(
    bound: dict[int, int], asked: list[int], page_size: int
) -> None:
    pages = PageMap(41)
    for virtual, physical in bound.items():
        pages.bind(VirtualPage(virtual), PhysicalPage(physical))
    found = pages.translate(np.array(asked, dtype=np.int64)).tolist()
    assert found == [bound.get(page, 0) for page in asked]
    assert found == [pages.physical(VirtualPage(page)) for page in asked]
    slots = [max(page, 0) * page_size + page_size - 1 for page in asked]
    expected = [bound.get(slot // page_size, 0) * page_size + page_size - 1 for slot in slots]
    assert pages.translate_slots(np.array(slots, dtype=np.int64), page_size).tolist() == expected
