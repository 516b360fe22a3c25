"""Sliding windows: paged attention equals a forward pass without any cache, at every length."""

from __future__ import annotations

import pytest

from tests.attention.oracle import Whole
from tests.attention.paged import Paged

WINDOW, DECODE = 8, 12
LENGTHS = range(5, 27)


@pytest.mark.parametrize("chunk", [1, 3, 7, 8, 9, 16])
@pytest.mark.parametrize("page_size", [1, 4])
def test_prompts_around_the_window_and_their_answers(chunk: int, page_size: int) -> None:
    """Lengths below, at and beyond the window, fed in chunks below, at and beyond it."""
    for length in LENGTHS:
        whole = Whole.random(length + DECODE, seed=length)
        memory = Paged([whole], page_size=page_size, windows=(WINDOW,), seed=length)
        for start in range(0, length, chunk):
            memory.check([(0, start, min(start + chunk, length))], padding=1, atol=1e-5)
        for at in range(length, length + DECODE):
            memory.check([(0, at, at + 1)], padding=1, atol=1e-5)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_chunk_of_many_tiles_sees_no_more_than_its_window(seed: int | None) -> None:
    whole = Whole.random(420, seed=1)
    memory = Paged([whole], page_size=16, windows=(0, 50, 200), seed=seed)
    for part in [(0, 0, 300), (0, 300, 419), (0, 419, 420)]:
        memory.check([part])


def test_a_window_as_long_as_the_context_hides_nothing() -> None:
    whole = Whole.random(24, seed=2)
    memory = Paged([whole], page_size=4, windows=(0, 24))
    for start in range(0, 24, 5):
        memory.check([(0, start, min(start + 5, 24))])
    last = (0, 23, 24)
    assert memory.step([last], layer=0).equal(memory.step([last], layer=1))


def test_what_left_the_window_is_not_read() -> None:
    """Pages that every window has passed may belong to somebody else by then."""
    whole = Whole.random(21, seed=3)
    memory = Paged([whole], page_size=4, windows=(WINDOW,))
    memory.check([(0, 0, 20)])
    for page in memory.pages[0][:3]:  # positions 0 to 11; the row at 20 sees 13 to 20
        at = int(memory.maps[0].physical(page))
        memory.pool.keys[0][at].fill_(1e9)
        memory.pool.values[0][at].fill_(1e9)
    memory.check([(0, 20, 21)])


@pytest.mark.parametrize("seed", [None, 1])
def test_the_last_row_of_a_chunk_sees_its_own_window(seed: int | None) -> None:
    memory = Paged(
        [Whole.random(30, seed=4), Whole.random(17, seed=5)],
        page_size=4,
        windows=(WINDOW, 0),
        seed=seed,
    )
    memory.check([(0, 0, 9)], last=True)
    memory.check([(0, 9, 30), (1, 0, 17)], last=True)
