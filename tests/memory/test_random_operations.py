"""Many requests in one memory, in any order: nothing is lost, and every page holds what it says."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.memory.world import World

# windows of the layers, virtual pages, pages of each windowed side, page size
MEMORIES = [
    ([None], 24, 0, 1),
    ([None], 9, 0, 4),
    ([None, 4], 40, 16, 1),
    ([None, 4], 12, 6, 4),
    ([5, 3], 20, 9, 2),
    ([None, 8, 3], 16, 9, 3),
    ([None, 1], 16, 9, 3),
    ([None, 6], 6, 5, 16),
]


@settings(max_examples=25)
@pytest.mark.parametrize(
    ("prefix_cache", "by_token"), [(True, True), (True, False), (False, False)]
)
@pytest.mark.parametrize("memory", MEMORIES)
@given(
    ops=st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 999), st.integers(0, 999)),
        min_size=10,
        max_size=80,
    )
)
def test_any_operations_leave_the_books_and_the_contents_right(
    memory: tuple[list[int | None], int, int, int],
    prefix_cache: bool,
    by_token: bool,
    ops: list[tuple[int, int, int]],
) -> None:
    world = World.of(*memory, prefix_cache=prefix_cache, by_token=by_token)
    for op, a, b in ops:
        world.apply(op, a, b)
    world.close()


@pytest.mark.parametrize(
    ("memory", "operations"),
    [
        (MEMORIES[1], 2_500),
        (MEMORIES[3], 2_500),
        pytest.param(MEMORIES[3], 10_000, marks=pytest.mark.slow),
        pytest.param(MEMORIES[5], 10_000, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_lost_over_thousands_of_operations(
    memory: tuple[list[int | None], int, int, int], operations: int
) -> None:
    rng = random.Random(4)
    world = World.of(*memory)
    for _ in range(operations):
        world.apply(rng.randrange(10), rng.randrange(1000), rng.randrange(1000))
    world.close()
    # The run was no easy one: pages ran short, the cache was hit and had to give way.
    usage = world.memory.usage()
    assert world.hits > 50
    assert world.inside > 20
    assert world.preempted > 20
    assert usage.pages.evictions > 50
    assert all(side.evictions > 50 for side in usage.sides)
