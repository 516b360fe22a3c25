"""A load as a JSON value."""

from __future__ import annotations

import json

import pytest

from firstlight.bench import report
from tests.bench.fake_server import FakeServer, answer
from tests.bench.loads import load


def test_a_report_is_json_and_has_every_request() -> None:
    server = FakeServer(script=lambda n: [None] if n == 1 else answer("a", "b"))
    made = json.loads(json.dumps(report(load(server, slo="ttft:5000")), allow_nan=False))
    assert made["totals"] == {
        "requests": 3,
        "answered": 2,
        "failed": 1,
        "input_tokens": 22,
        "cached_tokens": 8,
        "image_tokens": 4,
        "output_tokens": 4,
        "answers_of_uncounted_tokens": 0,
    }
    assert [r.get("error") for r in made["requests"]] == [
        *(None, "connection (RemoteProtocolError)", None)
    ]
    assert made["goodput"]["good"] == 2
    assert made["errors"][0]["requests"] == 1
    assert (made["about"]["load"], made["about"]["firstlight"]) == ("closed", None)
    assert "graphs" not in made


def test_what_was_measured_of_a_request_is_in_milliseconds() -> None:
    made = report(load(FakeServer(script=lambda n: answer("a", "b", pause=0.05)), num_requests=1))
    (one,) = made["requests"]
    (gap,) = one["itl_ms"]
    assert one["due_ms"] == 0
    assert one["ttft_ms"] > 20
    assert one["ttft_ms"] + gap == pytest.approx(one["e2e_ms"], abs=60)
    assert made["latency_ms"]["ttft"]["p99"] == one["ttft_ms"]


def test_repeated_pictures_are_told() -> None:
    made = report(load(FakeServer(), images=2, image_size="8x8", distinct_images=3))
    assert made["pictures"] == {"sent": 6, "distinct": 3, "repeated": 0.5}
