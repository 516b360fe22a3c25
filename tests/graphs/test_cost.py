"""Cost curves, and when they send a batch to eager."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import ConfigError
from firstlight.graphs.cost import MARGIN, BatchTimes, CostCurve, MeasuredCost

LINE = CostCurve(((16, 2.0), (32, 3.0), (64, 9.0)))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [(1, 2.0), (16, 2.0), (24, 2.5), (32, 3.0), (48, 6.0), (64, 9.0), (128, 18.0)],
)
def test_a_curve_is_flat_below_linear_between_and_goes_on_at_its_lesser_slope(
    rows: int, expected: float
) -> None:
    # Beyond 64 rows the average slope, 9/64 ms a row, is less than the last, 6/32.
    assert LINE.at(rows) == pytest.approx(expected)


@given(st.dictionaries(st.integers(1, 500), st.floats(0.1, 100), min_size=1), st.data())
def test_a_curve_never_falls(best: dict[int, float], data: st.DataObject) -> None:
    curve = CostCurve.through(best)
    a, b = sorted(data.draw(st.tuples(st.integers(1, 1000), st.integers(1, 1000))))
    assert curve.at(a) <= curve.at(b) * (1 + 1e-12)


@given(st.dictionaries(st.integers(1, 500), st.floats(0.1, 100), min_size=1))
def test_a_curve_is_at_no_measured_size_above_what_was_measured(best: dict[int, float]) -> None:
    curve = CostCurve.through(best)
    assert all(curve.at(rows) <= ms * (1 + 1e-12) for rows, ms in best.items())


def test_a_size_slower_than_a_larger_one_is_taken_for_disturbed() -> None:
    assert CostCurve.through({16: 2.0, 32: 9.0, 64: 4.0}).points == (
        (16, 2.0),
        (32, 4.0),
        (64, 4.0),
    )


@pytest.mark.parametrize("points", [(), ((4, 1.0), (2, 2.0)), ((2, 2.0), (4, 1.0)), ((-1, 1.0),)])
def test_a_curve_refuses_points_that_are_none(points: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ConfigError, match="ascending in rows"):
        CostCurve(points)


def settled(eager: dict[int, float], replay: dict[int, float]) -> MeasuredCost:
    cost = MeasuredCost()
    cost.settle(BatchTimes(CostCurve.through(eager), CostCurve.through(replay)))
    return cost


def test_nothing_is_too_dear_before_it_is_measured() -> None:
    assert MeasuredCost().too_dear(1, 1 << 20) is None


def test_a_bucket_far_beyond_the_batch_is_too_dear_and_both_times_are_told() -> None:
    cost = settled({1: 4.0, 64: 8.0, 512: 60.0}, {64: 6.0, 512: 48.0})
    assert cost.too_dear(64, 512) == (
        "the graph of 512 rows takes 48.00 ms, these 64 rows run eager 8.00 ms "
        "(estimated from measurements at start)"
    )


@pytest.mark.parametrize(("excess", "dear"), [(MARGIN - 0.01, False), (MARGIN + 0.01, True)])
def test_a_difference_within_the_margin_keeps_the_graph(excess: float, dear: bool) -> None:
    cost = settled({64: 10.0, 128: 20.0}, {64: 9.0, 128: 10 * (1 + excess)})
    assert (cost.too_dear(64, 128) is not None) is dear


def test_a_replay_is_never_held_to_take_longer_than_eager_at_its_size() -> None:
    cost = settled({32: 6.0, 64: 10.0}, {64: 90.0})
    assert cost.too_dear(64, 64) is None
    refusal = cost.too_dear(32, 64)
    assert refusal is not None
    assert "the graph of 64 rows takes 10.00 ms" in refusal


def test_a_batch_longer_than_any_measured_is_not_judged() -> None:
    cost = settled({1: 1.0, 64: 2.0}, {64: 1.0, 65536: 900.0})
    assert cost.too_dear(64, 65536) is not None
    assert cost.too_dear(65, 65536) is None


def test_costs_are_settled_once() -> None:
    cost = settled({1: 1.0}, {1: 1.0})
    with pytest.raises(ConfigError, match="measured already"):
        cost.settle(BatchTimes(LINE, LINE))


def test_eager_that_nobody_knows_is_infinitely_slow() -> None:
    times = BatchTimes(None, LINE)
    assert times.run(16, 64) == LINE.at(64)
    assert times.run(16, None) == float("inf")


def test_beyond_what_was_measured_eager_and_replay_keep_their_distance() -> None:
    times = BatchTimes(
        CostCurve(((1, 4.0), (100, 13.0), (200, 24.0))), CostCurve(((16, 2.0), (200, 20.0)))
    )
    assert times.eager_ms(2000) - times.replay_ms(2000) == pytest.approx(4.0)
    assert times.replay_ms(300) == pytest.approx(20.0 + 100 * (18 / 184))
