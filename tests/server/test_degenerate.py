"""Degenerate but plausible requests: a table of what becomes of each (case H29)."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from firstlight.engine.build import Parts
from tests.server.asking import CHAT, TEXT, body, data_url, error_of, streamed, text_of, user

PICTURE = data_url()
LAST = [*user("Say a"), {"role": "assistant", "content": "a"}]
REFUSED: list[tuple[str, dict[str, Any], str | None]] = [
    ("no messages", {"messages": []}, "messages"),
    ("null messages", {"messages": None}, "messages"),
    ("a text for messages", {"messages": "hi"}, "messages"),
    ("a message that is a text", {"messages": ["hi"]}, "messages[0]"),
    ("an unknown role", {"messages": [{"role": "robot", "content": "x"}]}, "messages[0]"),
    ("no content", {"messages": [{"role": "user"}]}, "messages[0].content"),
    ("null content", {"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    ("no parts", {"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    (
        "an unknown part",
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages[0].content[0]",
    ),
    (
        "a part without text",
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
    ),
    (
        "an unknown detail",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": PICTURE, "detail": "most"}}
                    ],
                }
            ]
        },
        "messages[0].content[0].image_url.url",
    ),
    ("max_tokens 0", {"max_tokens": 0}, "max_tokens"),
    ("max_tokens -1", {"max_tokens": -1}, "max_tokens"),
    ("max_tokens of text", {"max_tokens": "5"}, "max_tokens"),
    ("max_tokens 5.5", {"max_tokens": 5.5}, "max_tokens"),
    ("two limits that differ", {"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ("n 0", {"n": 0}, "n"),
    ("stream_options alone", {"stream_options": {"include_usage": True}}, "stream_options"),
    ("top_logprobs alone", {"top_logprobs": 2}, "top_logprobs"),
    ("a misspelt field", {"max_token": 5}, "max_token"),
    ("stop of nothing", {"stop": ""}, "stop"),
    ("min_tokens above max_tokens", {"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
]


@pytest.mark.parametrize(("fields", "param"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_what_is_refused_names_the_field(
    fields: dict[str, Any], param: str | None, stream: bool, http: httpx2.Client
) -> None:
    asked = body() | {"stream": stream} | fields
    if "stream_options" in fields:
        asked["stream"] = False
    answer = http.post(CHAT, json=asked)
    assert answer.status_code == 400
    assert error_of(answer)["param"] == param
    assert error_of(answer)["type"] == "invalid_request_error"


SERVED: list[tuple[str, dict[str, Any]]] = [
    ("empty text", {"messages": [{"role": "user", "content": ""}]}),
    ("a picture alone", {"messages": user(PICTURE)}),
    ("text alone", {"messages": user("What is it?")}),
    ("an address as a bare text", {"messages": [_bare := {"role": "user", "content": [
        {"type": "image_url", "image_url": PICTURE}]}]}),
    ("detail null", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": PICTURE, "detail": None}}]}]}),
    ("max_tokens 1", {"max_tokens": 1}),
    ("max_completion_tokens", {"max_completion_tokens": 6}),
    ("both limits, alike", {"max_completion_tokens": 6, "max_tokens": 6}),
    ("a last turn of the assistant", {"messages": LAST}),
    ("nulls", {"temperature": None, "n": None, "stop": None, "seed": None, "stream": None}),
    ("what is accepted without effect", {"user": "me", "metadata": {"a": "b"}, "store": False,
        "prompt_cache_key": "k", "parallel_tool_calls": True, "service_tier": "auto",
        "response_format": {"type": "text"}, "tools": [], "modalities": ["text"]}),
]  # fmt: skip


@pytest.mark.parametrize("fields", [r[1] for r in SERVED], ids=[r[0] for r in SERVED])
def test_what_is_plausible_is_served(fields: dict[str, Any], http: httpx2.Client) -> None:
    answer = http.post(CHAT, json=body() | fields)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == fields.get("max_tokens", 6)


def test_without_a_limit_an_answer_may_fill_the_context_and_no_more(
    http: httpx2.Client, parts: Parts
) -> None:
    for limit in ({}, {"max_tokens": None}, {"max_tokens": 10**9}):
        asked = body("word " * 235, tokens=None) | limit
        answer = http.post(CHAT, json=asked).json()
        assert answer["usage"]["total_tokens"] == parts.memory.max_context
        assert answer["choices"][0]["finish_reason"] == "length"


def test_a_text_and_a_list_of_that_text_are_one_prompt(http: httpx2.Client) -> None:
    ids = [
        http.post("/tokenize", json={"messages": [{"role": "user", "content": c}]}).json()
        for c in ("Hello", [{"type": "text", "text": "Hello"}])
    ]
    assert ids[0] == ids[1]


def test_completions_take_16_tokens_by_default(http: httpx2.Client) -> None:
    answer = http.post(TEXT, json={"prompt": "Hello", "ignore_eos": True}).json()
    assert answer["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize("name", ["functions", "priority", "audio"])
def test_what_is_not_implemented_is_refused_by_name(name: str, http: httpx2.Client) -> None:
    value: Any = {
        "functions": [{"name": "f"}],
        "priority": 3,
        "audio": {"voice": "a"},
    }[name]
    error = error_of(http.post(CHAT, json=body() | {name: value}))
    assert error["param"].startswith(name)
    assert error["code"] == "unsupported_parameter"


def test_every_field_of_openais_chat_api_is_known(http: httpx2.Client) -> None:
    """Each is honoured or refused; of none it is said that there is no such field."""
    from openai.types.chat import completion_create_params

    from firstlight.server.schemas.chat import ChatRequest

    known = set(completion_create_params.CompletionCreateParamsStreaming.__annotations__)
    known |= set(completion_create_params.CompletionCreateParamsBase.__annotations__)
    assert len(known) > 30
    assert known - set(ChatRequest.model_fields) == set()


def test_a_bad_picture_is_refused_with_its_place_also_as_a_stream(http: httpx2.Client) -> None:
    for stream in (False, True):
        for url in ("data:image/png;base64,AAAA", "https://example.org/a.png?key=secret"):
            asked = body(stream=stream)
            asked["messages"] = [
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}
            ]
            answer = http.post(CHAT, json=asked)
            assert answer.status_code == 400
            error = error_of(answer)
            assert error["param"] == "messages[0].content[0].image_url.url"
            assert "secret" not in answer.text


def test_no_file_of_the_server_is_read(http: httpx2.Client) -> None:
    for part in (
        {"type": "image_url", "image_url": {"url": "file:///etc/hostname"}},
        {"type": "image_url", "image_url": {"url": "/etc/hostname"}},
        {"type": "image", "image": "/etc/hostname"},
        {"type": "image_url", "image_url": "/etc/hostname"},
    ):
        asked = body() | {"messages": [{"role": "user", "content": [part]}]}
        assert http.post(CHAT, json=asked).status_code == 400


def test_an_unknown_model_is_404(http: httpx2.Client) -> None:
    answer = http.post(CHAT, json=body(model="gpt-4o"))
    assert answer.status_code == 404
    assert error_of(answer)["code"] == "model_not_found"
    assert streamed(http, CHAT, body(model="qwen3_vl"))[0]["model"] == "qwen3_vl"
    assert text_of(http.post(CHAT, json=body()).json())
