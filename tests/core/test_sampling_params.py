"""Sampling parameters: every field is checked, and the message names it and what is accepted."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from firstlight.core.sampling_params import SamplingParams
from firstlight.errors import RequestError

_REFUSED: dict[str, list[object]] = {
    "temperature": [-0.1, 101, math.nan, math.inf, 1e308, "NaN", True, None],
    "top_k": [-1, 1.5, True, "5"],
    "top_p": [0, -1, 1.1, math.nan],
    "min_p": [-0.1, 1.1],
    "repetition_penalty": [0, -1, 101],
    "presence_penalty": [-2.1, 2.1],
    "frequency_penalty": [-2.1, 2.1],
    "max_tokens": [0, -1, 1.5, True],
    "min_tokens": [-1, 257, None],
    "stop": [("",), (1,), 5, {"a": 1}],
    "stop_token_ids": [(-1,), (1.5,), 7, "7"],
    "seed": [1.5, "1", True],
    "logprobs": [-1, 21, 1.0, True],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in _REFUSED.items() for value in values]
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: object) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(RequestError, match=rf"{name} = .*accepted: "):
        SamplingParams(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 100, "top_p": 1, "min_p": 1, "top_k": 2**40},
        {"max_tokens": None, "min_tokens": 10**6},
        {"max_tokens": 2**63, "seed": -(2**70)},
        {"logprobs": 0},
        {"presence_penalty": -2, "frequency_penalty": 2.0, "repetition_penalty": 1e-3},
    ],
)
def test_values_at_the_limits_are_taken(options: dict[str, Any]) -> None:
    params = SamplingParams(**options)
    assert all(getattr(params, name) == value for name, value in options.items())


@pytest.mark.parametrize(
    ("given", "stop"), [("END", ("END",)), (["a", "b"], ("a", "b")), ((), ()), (None, ())]
)
def test_stop_is_a_string_or_a_list_of_them(given: Any, stop: tuple[str, ...]) -> None:
    assert SamplingParams(stop=given).stop == stop


def test_parameters_can_be_compared_and_used_as_keys() -> None:
    first, second = SamplingParams(stop_token_ids=[1]), SamplingParams(stop_token_ids=(1,))  # type: ignore[arg-type]
    assert first == second
    assert hash(first) == hash(second)


def test_greedy_is_temperature_zero() -> None:
    assert SamplingParams(temperature=0).greedy
    assert not SamplingParams(temperature=1e-9).greedy


def test_numbers_of_other_types_become_plain_ones() -> None:
    params = SamplingParams(
        temperature=np.float32(0.5),  # type: ignore[arg-type]
        top_p=Fraction(1, 2),  # type: ignore[arg-type]
        max_tokens=np.int64(5),  # type: ignore[arg-type]
        seed=np.uint8(7),  # type: ignore[arg-type]
        stop_token_ids=(np.int32(3),),  # type: ignore[arg-type]
    )
    plain = SamplingParams(temperature=0.5, top_p=0.5, max_tokens=5, seed=7, stop_token_ids=(3,))
    assert params == plain
    assert {type(v) for v in (params.temperature, params.top_p)} == {float}
    assert {type(v) for v in (params.max_tokens, params.seed, *params.stop_token_ids)} == {int}


@pytest.mark.parametrize("value", [np.bool_(True), np.array([1, 2]), np.float32(5)])
def test_what_is_no_single_integer_is_refused(value: Any) -> None:
    with pytest.raises(RequestError, match="max_tokens = "):
        SamplingParams(max_tokens=value)


def test_a_stop_string_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(RequestError, match=r"stop\[1\] is not valid Unicode"):
        SamplingParams(stop=("a", "\ud800"))


@pytest.mark.parametrize("given", [{5: 1, "7": -2}, [(5, 1.0), (7, -2)], {5: 1.0, 7: -2.0}])
def test_a_bias_is_given_by_ids_or_ids_as_text(given: Any) -> None:
    assert SamplingParams(logit_bias=given).biases == ((5, 1.0), (7, -2.0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": 1}, "a key of logit_bias = 'x'; accepted: a token id"),
        ({-1: 1}, "a key of logit_bias = -1; accepted: a token id"),
        ({True: 1}, "a key of logit_bias = True; accepted: a token id"),
        ({5: 101}, "logit_bias.5 = 101; accepted: a number from -100 to 100"),
        ({5: float("nan")}, "logit_bias.5 = nan; accepted: a number from"),
        ({5: "1"}, "logit_bias.5 = '1'; accepted: a number from"),
        ([5], "logit_bias = 5; accepted: pairs"),
        ("5", "logit_bias = '5'; accepted: a list"),
        ({5: 1, "5": 2}, "logit_bias.5 is given twice"),
        (dict.fromkeys(range(1025), 1), "logit_bias = 1025; accepted: at most 1024 tokens"),
    ],
)
def test_a_bias_that_makes_no_sense_is_refused(given: Any, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        SamplingParams(logit_bias=given)
    assert str(caught.value).startswith(message)
