from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import CapacityError, ConfigError
from firstlight.memory import SINK_PAGE, PageAllocator, PhysicalPage


def _allocator(n_pages: int) -> PageAllocator[PhysicalPage]:
    return PageAllocator(n_pages)


def test_the_sink_is_never_handed_out() -> None:
    allocator = _allocator(8)
    assert SINK_PAGE not in allocator.allocate(7)
    assert not allocator.is_free(SINK_PAGE)


def test_a_run_is_preferred_to_scattered_pages() -> None:
    allocator = _allocator(10)
    held = allocator.allocate(9)
    allocator.free([held[0], held[2], held[5], held[6], held[7]])
    assert allocator.allocate(3) == [6, 7, 8]


def test_the_shortest_run_that_is_long_enough_is_taken() -> None:
    allocator = _allocator(20)
    held = allocator.allocate(19)
    allocator.free(held[0:6] + held[8:11])  # pages 1-6 and 9-11
    assert allocator.allocate(3) == [9, 10, 11]


def test_scattered_pages_serve_when_no_run_is_long_enough() -> None:
    allocator = _allocator(8)
    held = allocator.allocate(7)
    allocator.free(held[::2])
    assert sorted(allocator.allocate(4)) == [1, 3, 5, 7]


def test_scattered_pages_come_in_the_longest_pieces() -> None:
    allocator = _allocator(12)
    held = allocator.allocate(11)
    allocator.free([held[0], held[2], held[4], held[5], held[6]])
    assert allocator.allocate(4) == [5, 6, 7, 1]


def test_pages_given_back_in_any_order_are_one_run_again() -> None:
    allocator = _allocator(10)
    held = allocator.allocate(9)
    for page in (held[4], held[2], held[3], held[8], held[0], held[1], *reversed(held[5:8])):
        allocator.free([page])
    assert list(allocator.runs()) == [(1, 9)]


def test_the_next_page_follows_the_last() -> None:
    allocator = _allocator(10)
    first = allocator.allocate(2)
    assert allocator.allocate(1, after=first[-1]) == [3]


def test_a_request_that_grows_keeps_its_run_while_others_come() -> None:
    allocator = _allocator(40)
    one = allocator.allocate(2, expected=8)
    two = allocator.allocate(2, expected=8)
    other = allocator.allocate(3)
    for _ in range(6):
        one += allocator.allocate(1, after=one[-1])
        two += allocator.allocate(1, after=two[-1])
    assert one == list(range(1, 9))
    assert two == list(range(9, 17))
    assert other == [17, 18, 19]


def test_hoped_for_pages_are_free_and_serve_others_at_last() -> None:
    allocator = _allocator(12)
    allocator.allocate(1, expected=11)
    assert allocator.n_free == 10
    assert allocator.is_free(PhysicalPage(2))
    other = allocator.allocate(2)
    assert other == [10, 11]  # far from the page that hopes to grow
    assert len(allocator.allocate(8)) == 8
    assert allocator.n_free == 0


def test_two_that_hope_for_everything_share_what_there_is() -> None:
    allocator = _allocator(41)
    one = allocator.allocate(2, expected=100)
    two = allocator.allocate(2, expected=100)
    for _ in range(15):
        one += allocator.allocate(1, after=one[-1])
        two += allocator.allocate(1, after=two[-1])
    assert one == list(range(one[0], one[0] + 17))
    assert two == list(range(two[0], two[0] + 17))


def test_the_hope_ends_with_its_owners_last_page() -> None:
    allocator = _allocator(12)
    one = allocator.allocate(3, expected=11)
    allocator.free(one)
    assert list(allocator.runs()) == [(1, 11)]


def test_a_hope_can_be_given_up_while_the_page_stays() -> None:
    allocator = _allocator(12)
    one = allocator.allocate(3, expected=11)
    allocator.forget(one[-1])
    assert allocator.allocate(2) == [4, 5]


def test_no_pages_are_an_empty_list() -> None:
    allocator = _allocator(4)
    assert allocator.allocate(0) == []
    allocator.free([])
    assert allocator.n_free == 3


def test_a_refusal_takes_nothing_and_names_both_numbers() -> None:
    allocator = _allocator(4)
    with pytest.raises(CapacityError, match=r"5 KV pages are needed and 3 of 3 are free"):
        allocator.allocate(5)
    assert allocator.n_free == 3


def test_freeing_twice_is_refused_and_changes_nothing() -> None:
    allocator = _allocator(4)
    pages = allocator.allocate(2)
    allocator.free(pages[:1])
    with pytest.raises(ValueError, match="not allocated"):
        allocator.free(pages)
    with pytest.raises(ValueError, match="not allocated"):
        allocator.free([pages[1], pages[1]])
    with pytest.raises(ValueError, match="not allocated"):
        allocator.free([SINK_PAGE])
    assert allocator.n_free == 2


def test_a_pool_of_the_sink_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="kv_pages = 1"):
        _allocator(1)
    with pytest.raises(ConfigError, match="sliding_pages = 0"):
        PageAllocator(0, name="sliding_pages")


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(0, 20), st.booleans()), max_size=60),
    st.randoms(use_true_random=False),
)
def test_every_page_is_held_once_or_in_one_free_run(
    steps: list[tuple[int, int, bool]], rng: object
) -> None:
    allocator = _allocator(33)
    held: list[list[PhysicalPage]] = []
    for size, expected, grow in steps:
        if size > allocator.n_free:
            pages = held.pop(rng.randrange(len(held)))  # type: ignore[attr-defined]
            rng.shuffle(pages)  # type: ignore[attr-defined]
            allocator.free(pages)
        elif grow and held:
            held[-1] += allocator.allocate(size, after=held[-1][-1], expected=expected)
        else:
            held.append(allocator.allocate(size, expected=expected))
        taken = [p for pages in held for p in pages]
        free = [p for start, n in allocator.runs() for p in range(start, start + n)]
        assert sorted(taken + free) == list(range(1, 33))
        assert allocator.n_free == len(free)
        assert all(allocator.is_free(PhysicalPage(p)) for p in free)


@given(st.integers(1, 12), st.sets(st.integers(1, 29)))
def test_a_run_that_is_long_enough_is_always_found(n: int, free: set[int]) -> None:
    allocator = _allocator(30)
    allocator.allocate(29)
    allocator.free([PhysicalPage(page) for page in free])
    runs = [s for s in range(1, 31 - n) if all(page in free for page in range(s, s + n))]
    if n <= len(free):
        pages = allocator.allocate(n)
        assert len(set(pages)) == n
        assert (pages == list(range(pages[0], pages[0] + n))) == bool(runs)
