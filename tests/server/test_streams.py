"""Whole answers and streams say the same, in OpenAI's form (case H25)."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import pytest

from tests.server.asking import CHAT, TEXT, body, data_url, joined, streamed, text_of
from tests.server.running import Running

PICTURE = data_url()


@pytest.mark.parametrize("n", [1, 2])
def test_a_stream_says_what_the_whole_answer_says(http: httpx2.Client, n: int) -> None:
    asked = body(PICTURE, "What is it?", n=n)
    whole = http.post(CHAT, json=asked).json()
    chunks = streamed(http, CHAT, asked)
    for index in range(n):
        assert joined(chunks, index) == text_of(whole, index) != ""


@pytest.mark.parametrize("n", [1, 2])
def test_a_stream_has_roles_first_one_end_for_each_choice_and_no_usage_unasked(
    http: httpx2.Client, n: int
) -> None:
    *chunks, last = streamed(http, CHAT, body(PICTURE, "What is it?", n=n))
    assert last == "[DONE]"
    assert all(len(chunk["choices"]) == 1 and "usage" not in chunk for chunk in chunks)
    for index in range(n):
        own = [c for chunk in chunks for c in chunk["choices"] if c["index"] == index]
        assert own[0]["delta"]["role"] == "assistant"
        assert ["finish_reason" in choice for choice in own] == [True] * len(own)
        ends = [c["finish_reason"] for c in own]
        assert ends == [None] * (len(own) - 1) + ["length"]


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_the_usage_comes_once_and_last_when_asked_for(http: httpx2.Client, path: str) -> None:
    asked = body() if path == CHAT else {"prompt": "Hello", "max_tokens": 4}
    whole = http.post(path, json=asked).json()
    chunks = streamed(http, path, asked | {"stream_options": {"include_usage": True}})
    *before, usage, done = chunks
    assert done == "[DONE]"
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in before)
    assert usage["choices"] == []
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert usage["usage"][name] == whole["usage"][name]


def test_continuous_usage_counts_up_in_every_chunk(http: httpx2.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *chunks, _ = streamed(http, CHAT, body(tokens=5, stream_options=options))
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
    assert counts == sorted(counts)
    assert counts[-1] == 5
    assert len({chunk["usage"]["prompt_tokens"] for chunk in chunks}) == 1


def test_prompt_tokens_are_those_of_the_expanded_prompt(
    http: httpx2.Client, server: Running
) -> None:
    asked = body(PICTURE, "What is it?")
    expanded = http.post("/tokenize", json={"messages": asked["messages"]}).json()
    usage = http.post(CHAT, json=asked).json()["usage"]
    media_id = server.service.parts.model.adapter.media_token_id
    details = usage["prompt_tokens_details"]
    assert usage["prompt_tokens"] == expanded["count"]
    assert details["image_tokens"] == expanded["tokens"].count(media_id) == 6
    assert details["text_tokens"] == expanded["count"] - 6


def test_a_prompt_that_was_there_before_says_how_much_of_it_was_cached(
    http: httpx2.Client,
) -> None:
    asked = body(data_url(seed=77), "What is it now, and what was it before?")
    first, second = (http.post(CHAT, json=asked).json() for _ in range(2))
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    assert text_of(first) == text_of(second)


def test_openais_client_reads_whole_answers_and_streams(client: openai.OpenAI) -> None:
    messages: Any = body(PICTURE, "What is it?")["messages"]
    asked: dict[str, Any] = {"model": "qwen3_vl", "messages": messages, "temperature": 0}
    asked |= {"max_completion_tokens": 6, "extra_body": {"ignore_eos": True}}
    whole = client.chat.completions.create(**asked)
    stream = client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == (
        whole.choices[0].message.content
    )
    assert last.choices == []
    assert last.usage is not None
    assert whole.usage is not None
    assert last.usage.completion_tokens == whole.usage.completion_tokens == 6


def test_two_answers_of_one_seed_differ_and_each_can_be_had_again(http: httpx2.Client) -> None:
    asked = body(tokens=8, n=2, temperature=1.0, seed=5)
    first, again = (http.post(CHAT, json=asked).json() for _ in range(2))
    second_alone = http.post(CHAT, json=asked | {"n": 1, "seed": 6}).json()
    assert [text_of(first, i) for i in (0, 1)] == [text_of(again, i) for i in (0, 1)]
    assert text_of(first, 1) == text_of(second_alone) != text_of(first, 0)


def test_further_answers_find_the_prompt_of_the_first_in_the_prefix_cache(
    http: httpx2.Client, server: Running
) -> None:
    kv = server.service.parts.kv
    before = kv.usage().cached_tokens
    prompt = "A prompt of many words that nobody has sent to this server before, not even once."
    answer = http.post(CHAT, json=body(prompt, n=3)).json()
    whole_pages = answer["usage"]["prompt_tokens"] // 4 * 4
    assert kv.usage().cached_tokens - before >= 2 * (whole_pages - 4)


def test_timings_come_when_asked_for_and_only_then(http: httpx2.Client) -> None:
    asked = body(data_url(seed=9), "What is it?", tokens=3)
    assert "timings" not in http.post(CHAT, json=asked).json()
    for answer in (
        http.post(CHAT, json=asked | {"timings": True}),
        http.post(CHAT, json=asked, headers={"x-firstlight-timings": "1"}),
    ):
        timings = answer.json()["timings"]
        assert timings["ttft_ms"] >= timings["prefill_ms"] > 0
        assert timings["media"][0]["size"] == [48, 32]
        assert timings["media"][0]["artifact"] == "hit"
        assert timings["prefill_steps"][0]["mode"] == "graph"
        assert sum(way["steps"] for way in timings["decode_steps"]) == 2
        stages = dict(s.split(";dur=") for s in answer.headers["server-timing"].split(", "))
        assert float(stages["ttft"]) == pytest.approx(timings["ttft_ms"], abs=0.01)
        assert stages.keys() >= {"queue", "fetch", "process", "encode", "prefill", "decode"}


def test_a_stream_has_its_timings_in_the_last_chunk_and_ttft_in_its_header(
    http: httpx2.Client,
) -> None:
    asked = body(timings=True, stream=True)
    with http.stream("POST", CHAT, json=asked) as response:
        assert "ttft;dur=" in response.headers["server-timing"]
        response.read()
    for options in (None, {"include_usage": True}):
        *chunks, _ = streamed(http, CHAT, body(timings=True, stream_options=options))
        assert ["timings" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]


def test_several_prompts_are_answered_in_order(http: httpx2.Client) -> None:
    prompts = ["Hello", "A circle"]
    asked = {"prompt": prompts, "n": 2, "temperature": 0, "max_tokens": 5}
    whole = http.post(TEXT, json=asked).json()
    chunks = streamed(http, TEXT, asked)
    alone = [http.post(TEXT, json=asked | {"prompt": p}).json() for p in prompts]
    for index in range(4):
        expected = text_of(alone[index // 2], index % 2)
        assert text_of(whole, index) == joined(chunks, index) == expected
    assert whole["usage"]["prompt_tokens"] == sum(a["usage"]["prompt_tokens"] for a in alone)
