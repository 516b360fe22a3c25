"""Which loads are refused, and how."""

from __future__ import annotations

from typing import Any

import pytest

from firstlight.bench.settings import LoadSettings
from firstlight.bench.values import Span
from firstlight.errors import ConfigError


def test_texts_become_spans_sizes_and_limits() -> None:
    settings = LoadSettings.from_options(
        {"input_tokens": "100:200", "output_tokens": "7", "images": 1, "slo": "ttft:200, itl:30.5"}
        | {"image_size": "64x32, 16X16"}
    )
    assert (settings.input_tokens, settings.output_tokens) == (Span(100, 200), Span(7, 7))
    assert settings.image_size == ((64, 32), (16, 16))
    assert settings.slo == {"ttft": 200, "itl": 30.5}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_requests": 0}, "num_requests = 0; accepted: an int from 1"),
        ({"concurrency": 0}, "concurrency = 0; accepted: an int from 1 to 10000"),
        ({"request_rate": 0.0}, "request_rate = 0.0; accepted: a number above 0"),
        ({"request_rate": float("nan")}, "request_rate = nan"),
        ({"input_tokens": "0"}, "input_tokens = '0'; accepted: an int from 1"),
        ({"input_tokens": "9:3"}, "input_tokens = '9:3'"),
        ({"output_tokens": "1:2:3"}, "output_tokens = '1:2:3'"),
        ({"output_tokens": "many"}, "output_tokens = 'many'"),
        ({"image_size": "448"}, "image_size = '448'; accepted: WIDTHxHEIGHT"),
        ({"image_size": "0x5"}, "image_size = '0x5'"),
        ({"image_size": ""}, "image_size = ''"),
        ({"slo": "ttfb:5"}, "of ttft, itl, tpot, e2e"),
        ({"slo": "ttft"}, "slo = 'ttft'"),
        ({"slo": "ttft:-1"}, "slo = 'ttft:-1'"),
        ({"timeout": 0.0}, "timeout = 0.0"),
        ({"seed": -1}, "seed = -1"),
        ({"temperature": 101.0}, "temperature = 101.0"),
        ({"concurrency": 2, "request_rate": 1.0}, "contradict each other"),
        ({"max_concurrency": 2}, "contradict each other: a closed load"),
        ({"distinct_images": 2}, "there are no pictures"),
    ],
)
def test_what_is_no_load_is_refused_by_name_and_value(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LoadSettings.from_options(options)
    assert said in str(refused.value)


def test_a_load_is_closed_with_one_client_unless_told_otherwise() -> None:
    settings = LoadSettings()
    assert (settings.request_rate, settings.clients) == (None, 1)
    assert settings.describe()["concurrency"] == 1
