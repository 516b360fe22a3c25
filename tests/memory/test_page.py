from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import CapacityError, ConfigError
from firstlight.memory import SINK_PAGE, PageAllocator


def test_the_sink_is_never_handed_out() -> None:
    allocator = PageAllocator(8)
    assert SINK_PAGE not in allocator.allocate(7)


def test_a_run_is_preferred_to_scattered_pages() -> None:
    allocator = PageAllocator(10)
    held = allocator.allocate(9)
    allocator.free([held[0], held[2], held[5], held[6], held[7]])
    assert allocator.allocate(3) == [6, 7, 8]


def test_scattered_pages_serve_when_no_run_is_long_enough() -> None:
    allocator = PageAllocator(8)
    held = allocator.allocate(7)
    allocator.free(held[::2])
    assert sorted(allocator.allocate(4)) == [1, 3, 5, 7]


def test_a_refusal_takes_nothing_and_names_both_numbers() -> None:
    allocator = PageAllocator(4)
    with pytest.raises(CapacityError, match=r"5 KV pages are needed and 3 of 3 are free"):
        allocator.allocate(5)
    assert allocator.n_free == 3


def test_freeing_twice_is_refused_and_changes_nothing() -> None:
    allocator = PageAllocator(4)
    pages = allocator.allocate(2)
    allocator.free(pages[:1])
    with pytest.raises(ValueError, match="not allocated"):
        allocator.free(pages)
    assert allocator.n_free == 2


def test_a_pool_of_the_sink_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv_pages = 1"):
        PageAllocator(1)


@given(st.lists(st.integers(1, 6), max_size=40), st.randoms(use_true_random=False))
def test_every_page_is_held_once_or_free(sizes: list[int], rng: object) -> None:
    allocator = PageAllocator(17)
    held: list[list[int]] = []
    for size in sizes:
        if size > allocator.n_free:
            allocator.free(held.pop(rng.randrange(len(held))))  # type: ignore[attr-defined,arg-type]
            continue
        held.append(list(allocator.allocate(size)))
        pages = [p for pages in held for p in pages]
        assert len(pages) == len(set(pages))
        assert len(pages) + allocator.n_free == 16
