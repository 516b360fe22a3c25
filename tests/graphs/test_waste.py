"""Waste, lengths, and the list that others use by default."""

from __future__ import annotations

import pytest

from firstlight.errors import ConfigError
from firstlight.graphs import default_ladder
from firstlight.graphs.cost import BatchTimes, CostCurve
from firstlight.graphs.lengths import Lengths
from firstlight.graphs.waste import expected_waste, sglang_ladder

LENGTHS = Lengths.counted([3, 3, 5, 20])
TIMES = BatchTimes(CostCurve(((0, 2.0), (10, 12.0))), CostCurve(((0, 1.0), (10, 11.0))))
"""2 ms and 1 ms a batch, and 1 ms a row."""


def test_waste_in_rows_is_rows_computed_over_live_rows_less_one() -> None:
    # 3 -> 4, 3 -> 4, 5 -> 8, and 20 runs eager.
    waste = expected_waste((4, 8), LENGTHS, None)
    assert waste.rows == pytest.approx((4 + 4 + 8 + 20) / (3 + 3 + 5 + 20) - 1)
    assert waste.eager == 0.25
    assert waste.time is None


def test_waste_in_time_counts_the_faster_of_graph_and_eager() -> None:
    # 3 in 4: 5 ms either way; 5 in 8: 9 ms by graph, 7 ms eager; 20: 22 ms eager, 21 by a graph.
    waste = expected_waste((4, 8), LENGTHS, TIMES)
    assert waste.ms == pytest.approx((5 + 5 + 7 + 22) / 4)
    assert waste.time == pytest.approx((5 + 5 + 7 + 22) / (4 + 4 + 6 + 21) - 1)
    assert waste.rows == pytest.approx((4 + 4 + 5 + 20) / 31 - 1)
    assert waste.eager == 0.5


def test_a_margin_keeps_the_graph_although_eager_is_a_little_faster() -> None:
    waste = expected_waste((4, 8), LENGTHS, TIMES, margin=0.5)
    assert waste.ms == pytest.approx((5 + 5 + 9 + 22) / 4)
    assert waste.eager == 0.25


def test_a_bucket_of_each_length_wastes_nothing() -> None:
    waste = expected_waste((3, 5, 20), LENGTHS, TIMES)
    assert waste.rows == pytest.approx(0)
    assert waste.time == pytest.approx(0)


@pytest.mark.parametrize(("cap", "count"), [(2048, 42), (4096, 50), (8192, 58), (16384, 74)])
def test_sglangs_ladder_has_the_known_counts(cap: int, count: int) -> None:
    sizes = sglang_ladder(cap)
    assert len(sizes) == count
    assert sizes[-1] == cap


def test_sglangs_ladder_ends_below_a_cap_off_its_grid_and_ours_at_it() -> None:
    assert sglang_ladder(1000)[-1] == 960
    assert default_ladder(1000)[-1] == 1000


def test_a_log_uniform_distribution_weighs_each_doubling_alike() -> None:
    lengths = Lengths.log_uniform(32, 2047)
    halves = [
        sum(w for n, w in zip(lengths.rows, lengths.weights, strict=True) if low <= n < 2 * low)
        for low in (32, 64, 128, 256, 512, 1024)
    ]
    assert halves == pytest.approx([halves[0]] * 6, rel=0.03)


def test_long_prompts_become_full_steps_and_a_rest() -> None:
    steps = Lengths.counted([10, 70, 70, 128]).in_steps(32)
    assert dict(zip(steps.rows, steps.weights, strict=True)) == {6: 2, 10: 1, 32: 2 * 2 + 4}


@pytest.mark.parametrize(
    ("rows", "weights"),
    [((), ()), ((2, 1), (1, 1)), ((0, 1), (1, 1)), ((1, 2), (1,)), ((1,), (0,))],
)
def test_a_distribution_refuses_what_is_none(
    rows: tuple[int, ...], weights: tuple[float, ...]
) -> None:
    with pytest.raises(ConfigError):
        Lengths(rows, tuple(map(float, weights)))
