"""The arithmetic of a load's figures."""

from __future__ import annotations

import pytest

from firstlight.bench.summary import errors, goodput, latencies, rates, spread, totals
from tests.bench.loads import came, failed


def test_percentiles_lie_on_the_line_between_two_values() -> None:
    found = spread([0.001 * n for n in range(1, 101)])
    assert found == {"mean": 50.5, "p50": 50.5, "p90": 90.1, "p99": 99.01, "max": 100.0}


def test_one_value_is_every_percentile() -> None:
    assert spread([0.25]) == dict.fromkeys(("mean", "p50", "p90", "p99", "max"), 250.0)


def test_nothing_has_no_spread() -> None:
    assert spread([]) is None
    assert spread([None]) is None


def test_latencies_are_of_answers_and_never_of_errors() -> None:
    found = latencies([came(0.1, 0.12, 0.16, ended=0.18), failed("cut off", ended=9.0)])
    assert found["ttft"] == dict.fromkeys(("mean", "p50", "p90", "p99", "max"), 100.0)
    assert found["itl"] is not None
    assert (found["itl"]["mean"], found["itl"]["max"]) == (30.0, 40.0)
    assert found["tpot"] is not None
    assert found["tpot"]["mean"] == 40.0  # (180 - 100) / 2
    assert found["e2e"] is not None
    assert found["e2e"]["max"] == 180.0


def test_time_to_first_token_counts_from_when_the_request_was_due() -> None:
    assert came(1.5, due=1.0, sent=1.4).ttft == pytest.approx(0.5)


def test_several_tokens_in_a_piece_are_in_the_time_per_token() -> None:
    assert came(0.1, 0.5, completion_tokens=9).tpot == pytest.approx(0.05)


def test_rates_are_over_the_whole_load_failed_requests_included() -> None:
    answers = [
        came(0.5, 1.0, prompt_tokens=10),
        came(1.5, 2.0, due=1.0, prompt_tokens=30),
        failed("cut off", due=0.0, ended=4.0),
    ]
    assert rates(answers) == {
        "requests_per_s": 0.5,
        "input_tokens_per_s": 10.0,
        "output_tokens_per_s": 1.0,
        "seconds": 4.0,
        "mean_in_flight": 1.5,
    }


def test_totals_leave_out_what_failed_requests_brought() -> None:
    lost = failed("cut off")
    found = totals([came(0.1, 0.2, prompt_tokens=5, cached_tokens=3, image_tokens=2), lost])
    assert (found["requests"], found["answered"], found["failed"]) == (2, 1, 1)
    assert (found["input_tokens"], found["cached_tokens"], found["image_tokens"]) == (5, 3, 2)
    assert (found["output_tokens"], found["answers_of_uncounted_tokens"]) == (2, 0)


def test_errors_are_counted_by_kind_with_what_was_said_first() -> None:
    kinds = [failed("a", detail="one"), failed("b"), failed("a", detail="two"), came(0.1)]
    assert errors(kinds) == [
        {"error": "a", "requests": 2, "said": "one"},
        {"error": "b", "requests": 1, "said": ""},
    ]


@pytest.mark.parametrize(
    ("limits", "good"),
    [
        ({"ttft": 150}, 2),
        ({"ttft": 99}, 0),
        ({"itl": 50}, 1),
        ({"ttft": 150, "itl": 50, "tpot": 30}, 1),
        ({"e2e": 1000}, 2),
        ({"tpot": 19}, 0),
    ],
)
def test_an_answer_is_good_within_all_limits_with_its_longest_gap(
    limits: dict[str, float], good: int
) -> None:
    even, stalled = came(0.1, 0.12, 0.14), came(0.1, 0.11, 0.4)
    found = goodput([even, stalled, failed("cut off", ended=2.0)], limits)
    assert found is not None
    assert (found["good"], found["share"]) == (good, round(good / 3, 4))
    assert found["good_per_s"] == good / 2


def test_without_limits_nothing_is_called_good() -> None:
    assert goodput([came(0.1)], {}) is None
