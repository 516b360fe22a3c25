"""Ladders and the states of buckets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.errors import ConfigError
from firstlight.graphs import (
    BucketState,
    BucketTable,
    default_ladder,
    parse_ladder,
    request_ladder,
)


def test_the_steps_of_the_token_ladder_double_and_then_are_an_eighth() -> None:
    ladder = default_ladder(2048)
    assert ladder[:3] == (16, 32, 48)
    assert ladder[7:10] == (128, 160, 192)
    assert ladder[11:14] == (256, 320, 384)
    assert ladder[15:22] == (512, 640, 768, 896, 1024, 1152, 1280)


@given(st.integers(1, 20_000))
def test_the_cap_is_the_largest_bucket(cap: int) -> None:
    for ladder in (default_ladder(cap), request_ladder(cap)):
        assert ladder[-1] == cap
        assert list(ladder) == sorted(set(ladder))


@given(st.integers(129, 20_000))
def test_steps_waste_a_quarter_at_most_above_128_and_an_eighth_above_1024(n: int) -> None:
    bucket = min(b for b in default_ladder(20_000) if b >= n)
    assert bucket - n < (n / 8 if n > 1024 else n / 4)


def test_the_request_ladder_doubles() -> None:
    assert request_ladder(8) == (1, 2, 4, 8)
    assert request_ladder(6) == (1, 2, 4, 6)
    assert request_ladder(1) == (1,)


@pytest.mark.parametrize("ladder", [default_ladder, request_ladder])
def test_a_cap_below_one_is_refused(ladder: object) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        ladder(0)  # type: ignore[operator]


def test_buckets_are_read_from_text_in_any_order() -> None:
    assert parse_ladder("64, 16,32,16") == (16, 32, 64)


@pytest.mark.parametrize("text", ["", "16,,32", "16,x", "0", "-4", "1.5"])
def test_a_bucket_that_is_no_positive_integer_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no positive integer"):
        parse_ladder(text)


@pytest.mark.parametrize(("n", "bucket"), [(1, 4), (4, 4), (5, 16), (16, 16), (17, None)])
def test_a_batch_fits_the_smallest_bucket_that_holds_it(n: int, bucket: int | None) -> None:
    assert BucketTable([16, 4, 4]).fitting(n) == bucket


def test_an_empty_table_fits_nothing() -> None:
    table = BucketTable([])
    assert (table.largest, table.fitting(1)) == (0, None)


def test_a_state_comes_with_its_reason() -> None:
    table = BucketTable([4])
    assert table.state(4) is BucketState.WAITING
    table.mark(4, BucketState.FAILED, "no memory")
    assert (table.state(4), table.why(4)) == (BucketState.FAILED, "no memory")


def test_unknown_and_impossible_buckets_are_refused() -> None:
    with pytest.raises(KeyError):
        BucketTable([4]).mark(5, BucketState.READY)
    with pytest.raises(ConfigError):
        BucketTable([0, 4])
