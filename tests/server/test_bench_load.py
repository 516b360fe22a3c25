"""The load generator on a real server: its counts are the server's."""

from __future__ import annotations

import asyncio
from typing import Any

from firstlight.bench import LoadSettings, measure, report
from tests.server.running import Running


def loaded(server: Running, **settings: Any) -> dict[str, Any]:
    """The report of a load with everything but texts left as small as can be."""
    small = {"num_requests": 6, "warmup": 1, "input_tokens": "40", "output_tokens": "5"}
    own = LoadSettings.from_options(small | {"ignore_eos": True} | settings)
    made = report(asyncio.run(measure(own, server.url)))
    assert server.idle()
    assert made["errors"] == []
    return made


def test_every_answer_has_as_many_tokens_as_were_asked_for(server: Running) -> None:
    made = loaded(server, output_tokens="3:7", concurrency=2, seed=11)
    assert made["totals"]["answered"] == 6
    for request in made["requests"]:
        assert request["completion_tokens"] == request["max_tokens"]
        assert request["finish_reason"] == "length"
    assert made["totals"]["answers_of_uncounted_tokens"] == 0


def test_texts_are_about_as_long_as_they_should_be(server: Running) -> None:
    made = loaded(server, input_tokens="80", num_requests=8, output_tokens="1", seed=12)
    mean = made["totals"]["input_tokens"] / 8
    assert 70 < mean < 105  # with the chat template's


def test_graphs_and_stages_of_the_load_alone_are_told(server: Running) -> None:
    made = loaded(server, concurrency=3, seed=13)
    prefill, decode = made["graphs"]
    assert (prefill["phase"], decode["phase"]) == ("prefill", "decode")
    # What is found in the prefix cache is not computed, and each answer's first token is the
    # prompt's.
    computed = made["totals"]["input_tokens"] - made["totals"]["cached_tokens"]
    assert prefill["live_rows"] + decode["live_rows"] == computed + 6 * 4
    assert decode["from_graphs"] == 1
    assert {"queue", "prefill", "ttft", "decode"} <= set(made["stages_ms"])
    assert "encode" not in made["stages_ms"]
    assert made["about"]["firstlight"]


def test_pictures_are_seen_and_those_that_come_again_are_found(server: Running) -> None:
    made = loaded(server, images=1, image_size="64x64", distinct_images=2, num_requests=4, seed=14)
    assert made["totals"]["image_tokens"] > 0
    assert made["pictures"]["repeated"] == 0.5
    assert made["stages_ms"]["encode"]["max"] > 0


def test_an_open_load_is_answered_as_well(server: Running) -> None:
    made = loaded(server, request_rate=50.0, max_concurrency=4, seed=15)
    assert (made["about"]["load"], made["totals"]["answered"]) == ("open", 6)
