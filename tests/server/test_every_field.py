"""Every field that clients of chats send is honoured, accepted without effect as the docs say, or
refused by its name; none is dropped in silence."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.server.asking import CHAT, TEXT, body, data_url, error_of, streamed, text_of, user
from tests.server.running import Running

SERVED: dict[str, Any] = {
    "model": "qwen3_vl",
    "messages": user("Hello"),
    "temperature": 0.5,
    "top_p": 0.9,
    "n": 2,
    "stop": ["zzz"],
    "max_tokens": 3,
    "max_completion_tokens": 6,
    "stream": False,
    "stream_options": None,
    "seed": 4,
    "logprobs": True,
    "top_logprobs": None,
    "logit_bias": {"5": 1},
    "presence_penalty": 1.0,
    "frequency_penalty": 1.0,
    "response_format": {"type": "text"},
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "ignore_eos": True,
    "min_tokens": 2,
    "stop_token_ids": [7],
    "skip_special_tokens": False,
    "chat_template_kwargs": {},
    "add_generation_prompt": False,
    "mm_processor_kwargs": {},
}
WITHOUT_EFFECT: dict[str, Any] = {
    "user": "me",
    "metadata": {"a": "b"},
    "prediction": {"type": "content", "content": "a"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"a": 1},
    "prompt_cache_retention": "24h",
    "safety_identifier": "me",
}
NEUTRAL: dict[str, tuple[Any, Any]] = {  # a value that is refused, and one that says nothing
    "modalities": (["text", "audio"], ["text"]),
    "service_tier": ("flex", "auto"),
    "store": (True, False),
    "web_search_options": ({}, None),
    "verbosity": ("low", None),
    "reasoning_effort": ("low", None),  # this model's template reads no such variable
    "audio": ({"voice": "a", "format": "wav"}, None),
    "functions": ([{"name": "f"}], []),
    "function_call": ({"name": "f"}, "none"),
    "moderation": ({"a": 1}, None),
    "continue_final_message": (True, False),  # the last message is the user's
    "truncate_prompt_tokens": (5, None),
    "include_stop_str_in_output": (True, False),
    "best_of": (2, 1),
    "use_beam_search": (True, False),
    "length_penalty": (2.0, 1.0),
    "priority": (1, 0),
    "chat_template": ("{{ messages }}", None),
    "documents": ([{"text": "a"}], None),
    "add_special_tokens": (True, False),
    "guided_json": ({}, None),
    "guided_regex": ("a", None),
    "guided_choice": (["a"], None),
    "guided_grammar": ("a", None),
}


@pytest.mark.parametrize("name", [*SERVED, *WITHOUT_EFFECT])
def test_a_field_that_is_served_is_accepted(name: str, http: httpx2.Client) -> None:
    answer = http.post(CHAT, json=body() | {name: (SERVED | WITHOUT_EFFECT)[name]})
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_what_has_no_effect_changes_nothing(name: str, http: httpx2.Client) -> None:
    plain, with_it = (
        http.post(CHAT, json=body() | fields).json()
        for fields in ({}, {name: WITHOUT_EFFECT[name]})
    )
    assert text_of(plain) == text_of(with_it)


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_field_that_is_not_served_is_refused_by_its_name_unless_it_says_nothing(
    name: str, http: httpx2.Client
) -> None:
    refused, neutral = NEUTRAL[name]
    answer = http.post(CHAT, json=body() | {name: refused})
    assert answer.status_code == 400
    error = error_of(answer)
    # An effort is a variable of the chat template, and is refused as one.
    expected = "chat_template_kwargs.reasoning_effort" if name == "reasoning_effort" else name
    assert error["param"] == expected
    assert error["message"].startswith(expected)
    assert http.post(CHAT, json=body() | {name: neutral}).status_code == 200


def test_the_tables_above_name_every_field_of_the_schema() -> None:
    from firstlight.server.schemas.chat import ChatRequest

    known = set(SERVED) | set(WITHOUT_EFFECT) | set(NEUTRAL)
    own = {"timings", "structured_outputs", "spaces_between_special_tokens"}  # tested elsewhere
    assert set(ChatRequest.model_fields) - known == own


# -- what the fields do ----------------------------------------------------------------------------


def ids_of(answer: dict[str, Any]) -> list[str]:
    return [entry["token"] for entry in answer["choices"][0]["logprobs"]["content"]]


def test_a_bias_makes_a_token_certain_or_impossible(http: httpx2.Client, server: Running) -> None:
    token = server.service.parts.model.tokenizer("q", add_special_tokens=False)["input_ids"][0]
    plain = http.post(CHAT, json=body(logprobs=True)).json()
    assert "q" not in ids_of(plain)
    sure = http.post(CHAT, json=body(logprobs=True, logit_bias={str(token): 100})).json()
    assert ids_of(sure) == ["q"] * 6
    tokens = server.service.tokens
    first = plain["choices"][0]["logprobs"]["content"][0]["bytes"]
    never = {str(i): -100 for i in range(tokens.size) if list(tokens.raw(i)) == first}
    other = http.post(CHAT, json=body(logprobs=True, logit_bias=never)).json()
    assert never
    assert other["choices"][0]["logprobs"]["content"][0]["bytes"] != first


@pytest.mark.parametrize(
    ("bias", "param"),
    [
        ({"x": 1}, "logit_bias"),
        ({"-1": 1}, "logit_bias"),
        ({"5": 101}, "logit_bias.5"),
        ({"99999999": 1}, "logit_bias.99999999"),
        ({str(i): 1 for i in range(1025)}, "logit_bias"),
        ({"5": "1"}, "logit_bias.5"),
        ([5], "logit_bias"),
    ],
)
def test_a_bias_that_makes_no_sense_is_refused(bias: Any, param: str, http: httpx2.Client) -> None:
    for path, asked in ((CHAT, body()), (TEXT, {"prompt": "a"})):
        answer = http.post(path, json=asked | {"logit_bias": bias})
        assert answer.status_code == 400
        assert error_of(answer)["param"] == param
        assert "accepted: " in error_of(answer)["message"]


def test_without_a_generation_prompt_the_prompt_ends_with_the_last_message(
    http: httpx2.Client,
) -> None:
    counts = [
        http.post(CHAT, json=body(add_generation_prompt=begun)).json()["usage"]["prompt_tokens"]
        for begun in (True, False)
    ]
    assert counts[0] > counts[1]


def test_the_last_message_is_gone_on_with(http: httpx2.Client, server: Running) -> None:
    turns = [*user("What is it?"), {"role": "assistant", "content": "It is"}]
    asked = body() | {"messages": turns, "continue_final_message": True}
    answer = http.post(CHAT, json=asked)
    assert answer.status_code == 200, answer.text
    ids = http.post("/tokenize", json={"messages": turns[:1]}).json()["tokens"]
    text = str(server.service.parts.model.tokenizer.decode(ids)) + "It is"
    told = http.post("/tokenize", json={"messages": turns, "continue_final_message": True}).json()
    assert told["count"] == answer.json()["usage"]["prompt_tokens"]
    raw = {"prompt": text, "temperature": 0, "max_tokens": 6, "ignore_eos": True}
    assert text_of(answer.json()) == text_of(http.post(TEXT, json=raw).json())
    both = error_of(http.post(CHAT, json=asked | {"add_generation_prompt": True}))
    assert both["param"] == "continue_final_message"


@pytest.mark.parametrize("name", ["tools", "messages", "eos_token", "a b", "add_generation_prompt"])
def test_names_that_are_the_engines_are_no_variables_of_the_template(
    name: str, http: httpx2.Client
) -> None:
    error = error_of(http.post(CHAT, json=body(chat_template_kwargs={name: 1})))
    assert error["param"] == "chat_template_kwargs"
    unread = error_of(http.post(CHAT, json=body(chat_template_kwargs={"enable_thinking": False})))
    assert unread["param"] == "chat_template_kwargs.enable_thinking"


def test_parts_may_carry_what_caches_of_others_want(http: httpx2.Client) -> None:
    content: list[dict[str, Any]] = [
        {"type": "image_url", "image_url": {"url": data_url()}, "uuid": "a",
         "prompt_cache_breakpoint": {"type": "ephemeral"}},
        {"type": "text", "text": "What is it?", "prompt_cache_breakpoint": True,
         "cache_control": {"type": "ephemeral"}},
    ]  # fmt: skip
    answers = [
        http.post(CHAT, json=body() | {"messages": [{"role": "user", "content": parts}]}).json()
        for parts in (content, user(data_url(), "What is it?")[0]["content"])
    ]
    assert text_of(answers[0]) == text_of(answers[1])


@pytest.mark.parametrize("n", [1, 2])
def test_echo_lets_the_answer_begin_with_the_prompt(n: int, http: httpx2.Client) -> None:
    prompts = ["Hello there", "A circle"]
    asked = {"prompt": prompts, "n": n, "temperature": 0, "max_tokens": 4, "ignore_eos": True}
    plain = http.post(TEXT, json=asked).json()
    echoed = http.post(TEXT, json=asked | {"echo": True}).json()
    chunks = streamed(http, TEXT, asked | {"echo": True})
    for i in range(2 * n):
        expected = prompts[i // n] + text_of(plain, i)
        assert text_of(echoed, i) == expected
        parts = [c["text"] for chunk in chunks[:-1] for c in chunk["choices"] if c["index"] == i]
        assert "".join(parts) == expected
    error = error_of(http.post(TEXT, json=asked | {"echo": True, "logprobs": 1}))
    assert (error["param"], error["code"]) == ("echo", "unsupported_parameter")


def test_a_prompt_may_be_token_ids(http: httpx2.Client) -> None:
    ids = http.post("/tokenize", json={"prompt": "Hello"}).json()["tokens"]
    rest = {"temperature": 0, "max_tokens": 4, "echo": True}
    texts = [
        [text_of(answer, i) for i in range(len(answer["choices"]))]
        for prompt in ("Hello", ids, [ids, ids])
        for answer in [http.post(TEXT, json=rest | {"prompt": prompt}).json()]
    ]
    assert texts == [texts[0], texts[0], texts[0] * 2]
    error = error_of(http.post(TEXT, json={"prompt": [2**31 - 1]}))
    assert error["param"] == "prompt[0]"
