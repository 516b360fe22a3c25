"""Bucket lists that are the optimum, against brute force and a second dynamic program."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.errors import ConfigError
from firstlight.graphs.cost import BatchTimes, CostCurve
from firstlight.graphs.lengths import Lengths
from firstlight.graphs.planner import Budget, CaptureCosts, Plan, plan_buckets
from firstlight.graphs.waste import expected_waste

ROWS = BatchTimes(None, CostCurve(((1, 1.0), (2, 2.0))))
"""A ms for each row computed, and no way to run eager: time is rows."""

# Taken from the bundled model in bfloat16 on one core of a small virtual machine.
MEASURED = BatchTimes(
    eager=CostCurve.through(
        {1: 2.70, 16: 3.61, 32: 4.78, 64: 6.11, 128: 11.10, 256: 20.55, 512: 46.32, 768: 70.46,
         1024: 102.72, 1536: 181.41, 2048: 288.79}
    ),
    replay=CostCurve.through(
        {16: 2.54, 32: 3.40, 64: 5.26, 128: 9.09, 256: 19.07, 512: 45.53, 768: 68.09,
         1024: 101.93, 1536: 179.81, 2048: 280.33}
    ),
)  # fmt: skip
WIDE = Lengths.log_uniform(32, 2048)
CHAT = Lengths.weighted({n: 1000 / n for n in range(20, 400, 7)}, "short chats")
PICTURES = Lengths.weighted(
    {base + text: 100 - text for base in (256, 576, 1024) for text in range(8, 90, 3)},
    "one picture of three sizes and a question",
)
curves = st.lists(st.floats(0.5, 50), min_size=1, max_size=4).map(
    lambda ms: CostCurve(tuple(zip((1, 8, 20, 40), sorted(ms), strict=False)))
)
histograms = st.dictionaries(st.integers(1, 40), st.integers(1, 50), min_size=1, max_size=7).map(
    Lengths.weighted
)


def total(buckets: tuple[int, ...], lengths: Lengths, times: BatchTimes) -> float:
    """Expected ms of a list, batch by batch."""
    spent = 0.0
    for n, weight in zip(lengths.rows, lengths.weights, strict=True):
        fitting = [b for b in buckets if b >= n]
        spent += weight * times.run(n, min(fitting) if fitting else None)
    return spent / lengths.total


def every_list(lengths: Lengths, count: int) -> list[tuple[int, ...]]:
    """All lists of at most ``count`` of the sizes up to the longest length."""
    sizes = range(1, lengths.rows[-1] + 1) if lengths.rows[-1] <= 12 else lengths.rows
    return [c for k in range(count + 1) for c in combinations(sizes, k)]


def second_opinion(lengths: Lengths, times: BatchTimes, count: int) -> float:
    """The optimum by recursion from the longest length down, batch by batch."""
    rows, weights = lengths.rows, lengths.weights

    @cache
    def best(upto: int, left: int) -> float:
        """Least ms of the first ``upto`` lengths with ``left`` buckets."""
        if upto == 0:
            return 0.0
        eager = best(upto - 1, left) + weights[upto - 1] * times.run(rows[upto - 1], None)
        if left == 0:
            return eager
        found, served = inf, 0.0
        for start in range(upto - 1, -1, -1):
            served += weights[start] * times.run(rows[start], rows[upto - 1])
            found = min(found, served + best(start, left - 1))
        return min(found, eager)

    # A batch between two buckets may never be left to eager by choice of the list alone, but a
    # bucket serves it eager where that is faster, so both programs have the same optimum.
    return best(len(rows), count) / lengths.total


@settings(max_examples=60, deadline=None)
@given(histograms, curves, curves, st.integers(1, 4))
def test_a_plan_is_as_good_as_the_best_of_all_lists(
    lengths: Lengths, eager: CostCurve, replay: CostCurve, count: int
) -> None:
    times = BatchTimes(eager, replay)
    plan = plan_buckets(lengths, times, Budget(count))
    best = min(total(buckets, lengths, times) for buckets in every_list(lengths, count))
    assert plan.ms == pytest.approx(best, rel=1e-9)
    assert plan.ms == pytest.approx(total(plan.buckets, lengths, times), rel=1e-9)
    assert len(plan.buckets) <= count
    assert plan.gap == 0


@settings(max_examples=60, deadline=None)
@given(
    histograms, curves, st.none() | curves, st.integers(1, 4), curves, curves, curves,
    st.floats(0.1, 4), st.floats(0.1, 4),
)  # fmt: skip
def test_a_plan_within_budgets_is_the_best_of_all_lists_that_fit(
    lengths: Lengths, replay: CostCurve, eager: CostCurve | None, count: int, seconds: CostCurve,
    own: CostCurve, shared: CostCurve, tight: float, tighter: float,
) -> None:  # fmt: skip
    times = BatchTimes(eager, replay)
    capture = CaptureCosts(seconds, own, shared)
    middle = lengths.rows[len(lengths.rows) // 2]
    budget = Budget(count, tight * seconds.at(middle), tighter * (own.at(middle) + shared.at(1)))

    def fits(buckets: tuple[int, ...]) -> bool:
        assert budget.seconds is not None
        assert budget.bytes is not None
        held = sum(own.at(b) for b in buckets) + (shared.at(buckets[-1]) if buckets else 0)
        slow = sum(seconds.at(b) for b in buckets)
        return slow <= budget.seconds * (1 + 1e-9) and held <= budget.bytes * (1 + 1e-9)

    lists = [b for b in every_list(lengths, count) if fits(b)]
    best = min((total(b, lengths, times) for b in lists), default=inf)
    if best == inf:
        with pytest.raises(ConfigError, match="no bucket list fits"):
            plan_buckets(lengths, times, budget, capture)
        return
    plan = plan_buckets(lengths, times, budget, capture)
    assert fits(plan.buckets)
    assert plan.ms == pytest.approx(best, rel=1e-9)
    assert plan.gap <= 1e-9


@pytest.mark.parametrize("lengths", [CHAT, PICTURES, WIDE], ids=lambda lengths: lengths.label)
@pytest.mark.parametrize("times", [ROWS, MEASURED], ids=["rows", "measured"])
def test_a_plan_equals_the_optimum_of_a_second_program(lengths: Lengths, times: BatchTimes) -> None:
    if len(lengths.rows) > 100:  # a smaller relative of the same shape
        lengths = Lengths.weighted({n: 1 / n for n in range(32, 2049, 24)})
    plan = plan_buckets(lengths, times, Budget(12))
    assert plan.ms == pytest.approx(second_opinion(lengths, times, 12), rel=1e-9)


@pytest.mark.parametrize("lengths", [CHAT, PICTURES], ids=lambda lengths: lengths.label)
def test_no_neighbouring_list_is_better(lengths: Lengths) -> None:
    plan = plan_buckets(lengths, ROWS, Budget(6))
    for i, bucket in enumerate(plan.buckets[:-1]):
        for moved in (bucket - 1, bucket + 1):
            other = tuple(sorted({*plan.buckets[:i], moved, *plan.buckets[i + 1 :]}))
            assert total(other, lengths, ROWS) >= plan.ms


def test_expected_waste_of_24_buckets_on_log_uniform_lengths_is_at_most_5_percent_in_time() -> None:
    plan = plan_buckets(WIDE, MEASURED, Budget(24))
    waste = expected_waste(plan.buckets, WIDE, MEASURED)
    assert waste.time is not None
    assert waste.time <= 0.05
    assert waste.rows <= 0.05


def test_if_eager_is_barred_and_time_is_rows_no_24_buckets_waste_less_than_6_percent() -> None:
    # The optimum is exact, so that this is a bound for every list: 5 % of the rows needs more
    # buckets, or a fixed cost per batch, which padding does not multiply.
    plan = plan_buckets(WIDE, ROWS, Budget(24))
    assert 0.06 < expected_waste(plan.buckets, WIDE, ROWS).rows < 0.067
    more = plan_buckets(WIDE, ROWS, Budget(32))
    assert expected_waste(more.buckets, WIDE, ROWS).rows <= 0.05


def test_more_buckets_are_never_worse() -> None:
    times = [plan_buckets(PICTURES, MEASURED, Budget(n)).ms for n in range(1, 12)]
    assert times == sorted(times, reverse=True)


def test_no_bucket_is_taken_where_eager_is_faster_throughout() -> None:
    slow = CostCurve(((1, 9.0), (1000, 9000.0)))
    assert plan_buckets(CHAT, BatchTimes(ROWS.replay, slow), Budget(8)).buckets == ()


def test_sizes_are_multiples_of_the_alignment() -> None:
    plan = plan_buckets(WIDE, ROWS, Budget(8), align=64)
    assert [b % 64 for b in plan.buckets] == [0] * 8
    assert plan.align == 64


def test_more_lengths_than_can_be_tried_coarsen_the_sizes_and_the_plan_says_so() -> None:
    lengths = Lengths.counted(range(1, 4001))
    plan = plan_buckets(lengths, ROWS, Budget(2))
    assert plan == Plan((2000, 4000), pytest.approx(3000), 0.0, 2)  # type: ignore[arg-type]


def test_a_budget_without_costs_of_capture_is_refused() -> None:
    with pytest.raises(ConfigError, match="what a capture takes"):
        plan_buckets(CHAT, ROWS, Budget(4, seconds=1.0))


@pytest.mark.parametrize("budget", [Budget(0), Budget(2, seconds=0.0), Budget(2, bytes=-1)])
def test_budgets_that_allow_nothing_are_refused(budget: Budget) -> None:
    flat = CostCurve(((1, 1.0),))
    with pytest.raises(ConfigError):
        plan_buckets(CHAT, ROWS, budget, CaptureCosts(flat, flat, flat))


def test_a_budget_for_half_the_seconds_of_a_plan_is_kept_at_little_cost() -> None:
    seconds = CostCurve(((1, 0.05), (2048, 0.4)))
    none = CostCurve(((1, 0.0),))
    free = plan_buckets(PICTURES, MEASURED, Budget(24))
    taken = sum(seconds.at(b) for b in free.buckets)
    plan = plan_buckets(
        PICTURES, MEASURED, Budget(24, seconds=taken / 2), CaptureCosts(seconds, none, none)
    )
    assert sum(seconds.at(b) for b in plan.buckets) <= taken / 2
    assert free.ms <= plan.ms < 1.05 * free.ms
    assert plan.gap < 0.001
