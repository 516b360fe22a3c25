from __future__ import annotations

import pytest

from firstlight.memory import PhysicalPage, PhysicalSlot, VirtualPage, VirtualSlot
from firstlight.memory.ids import (
    page_of,
    pages_for,
    slot_of,
    virtual_page_of,
    virtual_slot_of,
)


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (16, 1), (17, 2), (32, 2)])
def test_pages_are_counted_up_to_the_last_partly_filled_one(tokens: int, pages: int) -> None:
    assert pages_for(tokens, 16) == pages


def test_a_slot_is_its_page_and_the_offset_in_it() -> None:
    assert slot_of([PhysicalPage(7), PhysicalPage(3)], position=5, page_size=4) == 3 * 4 + 1
    assert virtual_slot_of([VirtualPage(7), VirtualPage(3)], position=5, page_size=4) == 13


@pytest.mark.parametrize("page_size", [1, 16, 128])
def test_the_page_of_a_slot_is_the_page_it_was_made_from(page_size: int) -> None:
    for position in range(3 * page_size):
        pages = [4, 9, 2]
        physical = slot_of([PhysicalPage(p) for p in pages], position, page_size)
        virtual = virtual_slot_of([VirtualPage(p) for p in pages], position, page_size)
        assert page_of(PhysicalSlot(physical), page_size) == pages[position // page_size]
        assert virtual_page_of(VirtualSlot(virtual), page_size) == pages[position // page_size]
