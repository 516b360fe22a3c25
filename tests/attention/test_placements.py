"""Whatever pages requests hold and however their rows are batched, nothing but rounding changes."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.attention.oracle import Block, Whole
from tests.attention.paged import Paged, Part

WINDOWS = (0, 6, 33)


@dataclass(frozen=True)
class Scenario:
    """Requests, as length and blocks, and batches that compute them from first to last position."""

    requests: list[tuple[int, list[Block]]]
    batches: list[list[Part]]
    placement: int | None
    padding: int


@st.composite
def scenarios(draw: st.DrawFn, *, prefix_lm: bool) -> Scenario:
    requests: list[tuple[int, list[Block]]] = []
    plans: list[list[Part]] = []
    for i in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 90))
        blocks: list[Block] = []
        if prefix_lm:
            cuts = sorted(draw(st.lists(st.integers(0, length), max_size=6, unique=True)))
            blocks = list(zip(cuts[::2], cuts[1::2], strict=False))
        requests.append((length, blocks))
        wanted = draw(st.lists(st.integers(1, length), max_size=8, unique=True))
        inside = {e for low, high in blocks for e in range(low + 1, high)}
        ends = sorted({*wanted, length} - inside)
        plans.append([(i, a, b) for a, b in zip([0, *ends], ends, strict=False)])
    batches: list[list[Part]] = []
    while any(plans):
        waiting = [plan for plan in plans if plan]
        some = [plan for plan in waiting if draw(st.booleans())] or waiting
        batches.append([plan.pop(0) for plan in draw(st.permutations(some))])
    placement = draw(st.none() | st.integers(0, 10**6))
    return Scenario(requests, batches, placement, draw(st.integers(0, 3)))


def run(scenario: Scenario, page_size: int) -> None:
    requests = [
        Whole.random(length, seed=i, blocks=blocks)
        for i, (length, blocks) in enumerate(scenario.requests)
    ]
    memory = Paged(requests, page_size=page_size, windows=WINDOWS, seed=scenario.placement)
    for batch in scenario.batches:
        memory.check(batch, padding=scenario.padding)


@pytest.mark.parametrize("page_size", [1, 16, 128])
@given(scenarios(prefix_lm=False))
@settings(max_examples=12)
def test_causal_batches_equal_attention_by_definition(page_size: int, scenario: Scenario) -> None:
    run(scenario, page_size)


@pytest.mark.parametrize("page_size", [1, 16, 128])
@given(scenarios(prefix_lm=True))
@settings(max_examples=12)
def test_batches_with_blocks_equal_attention_by_definition(
    page_size: int, scenario: Scenario
) -> None:
    run(scenario, page_size)


@pytest.mark.slow
@pytest.mark.parametrize("page_size", [1, 2, 4, 16, 32, 128])
@pytest.mark.parametrize("prefix_lm", [False, True])
def test_many_more_batches(page_size: int, prefix_lm: bool) -> None:
    @given(scenarios(prefix_lm=prefix_lm))
    @settings(max_examples=200, deadline=None)
    def check(scenario: Scenario) -> None:
        run(scenario, page_size)

    check()


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_prefix_that_another_request_left_is_read_where_it_lies(page_size: int) -> None:
    """Two requests share the pages of a prefix and continue it differently, elsewhere."""
    shared, n = 48, 75
    first = Whole.random(n, seed=1)
    other = Whole.random(n, seed=2)
    for own, theirs in ((other.k, first.k), (other.v, first.v)):
        own[:shared] = theirs[:shared]
    per = shared // page_size
    rest = -(-n // page_size) - per
    prefix = list(range(per, 0, -1))  # scattered: the pages descend
    pages = [
        prefix + list(range(100, 100 + rest)),
        prefix + list(range(300, 300 + rest)),
    ]
    memory = Paged([first, other], page_size=page_size, windows=WINDOWS, pages=pages)
    memory.check([(0, 0, 70)])
    memory.check([(1, shared, 60), (0, 70, 71)])
    memory.check([(0, 71, 72), (1, 60, 75)])
    memory.check([(1, 74, 75), (0, 72, 73)])
