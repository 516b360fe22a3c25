"""Out-of-range numbers, large and deep bodies, prompts at the limit (cases H30 and H45)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from firstlight.engine.build import Parts
from tests.server.asking import CHAT, TEXT, body, data_url, error_of, user
from tests.server.running import Running, running

NUMBERS: list[tuple[str, Any]] = [
    ("n", 5_000_000),
    ("top_logprobs", 10**9),
    ("top_logprobs", -1),
    ("logit_bias", {"99999999": 1.0}),
    ("stop_token_ids", [-1]),
    ("stop_token_ids", list(range(5000))),
    ("stop_token_ids", [2**31 - 1]),
    ("stop", ["x"] * 100_000),
    ("stop", ["x" * 100_000]),
    ("stop", "x" * 100_000),
    ("temperature", 1e308),
    ("temperature", -1),
    ("temperature", "NaN"),
    ("top_p", -1),
    ("top_p", 0),
    ("top_k", -2),
    ("min_p", 1.5),
    ("repetition_penalty", 0),
    ("presence_penalty", 3),
    ("seed", 2**70),
    ("max_tokens", 2**63),
    ("min_tokens", 2**63),
]


@pytest.mark.parametrize(("name", "value"), NUMBERS)
def test_a_number_out_of_range_is_refused_at_once(
    name: str, value: Any, http: httpx2.Client
) -> None:
    """H45"""
    asked = body(logprobs=True) | {name: value}
    began = time.perf_counter()
    answer = http.post(CHAT, json=asked)
    assert time.perf_counter() - began < 1  # the case's 100 ms are the server's own, not a test's
    assert answer.status_code == 400
    assert error_of(answer)["param"].startswith(name)


@pytest.mark.parametrize("text", ['{"temperature": NaN}', '{"temperature": 1e999}', "[" * 100_000])
def test_what_is_no_json_is_refused(text: str, http: httpx2.Client) -> None:
    """H45"""
    answer = http.post(CHAT, content=text, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    error_of(answer)


def test_a_deeply_nested_value_is_refused(http: httpx2.Client) -> None:
    nested: Any = 1
    for _ in range(150):
        nested = [nested]
    answer = http.post(CHAT, json=body(tools=nested))
    assert answer.status_code == 400


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_body_that_does_not_say_it_is_json_is_refused(
    kind: str | None, http: httpx2.Client
) -> None:
    """Any page in a browser may send such a body to a server on the same machine."""
    headers = {} if kind is None else {"content-type": kind}
    answer = http.post(CHAT, content=json.dumps(body()), headers=headers)
    assert answer.status_code == 415
    assert "application/json" in error_of(answer)["message"]


def test_a_body_in_an_encoding_that_is_not_read_is_refused(http: httpx2.Client) -> None:
    answer = http.post(CHAT, json=body(), headers={"content-encoding": "gzip"})
    assert answer.status_code == 415
    assert "identity" in error_of(answer)["message"]
    assert http.post(CHAT, json=body(), headers={"content-encoding": "identity"}).is_success


def test_a_large_body_with_a_picture_is_served_by_default(http: httpx2.Client) -> None:
    """H45: 30 MiB of data that the picture's decoder does not care about."""
    padded = data_url() + "\n" * (30 << 20)
    answer = http.post(CHAT, json=body(padded, "What is it?"))
    assert answer.status_code == 200, answer.text[:500]


@pytest.fixture(scope="module")
def small(parts: Parts) -> Iterator[Running]:
    """A server that takes bodies of up to a mebibyte."""
    with running(parts, max_body_bytes=1 << 20, max_waiting_bytes=1 << 20) as server:
        yield server


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_over_the_limit_is_413_in_openais_form(announced: bool, small: Running) -> None:
    """H45: with Content-Length nothing of it is read; without, no more than the limit."""
    text = json.dumps(body("x" * (2 << 20))).encode()
    pieces = [text[i : i + 65536] for i in range(0, len(text), 65536)]
    headers = {"content-type": "application/json"}
    with small.client() as http:
        try:
            answer = http.post(CHAT, content=text if announced else iter(pieces), headers=headers)
        except (httpx2.WriteError, httpx2.ReadError):  # it closed while we were still writing
            answer = None
        if answer is not None:
            assert answer.status_code == 413
            assert str(1 << 20) in error_of(answer)["message"]
        assert http.post(CHAT, json=body()).status_code == 200
    assert small.idle()


@pytest.fixture(scope="module")
def limit(parts: Parts) -> int:
    """Tokens of prompt and answer together."""
    return parts.memory.max_context


@pytest.mark.parametrize("over", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("tokens", [None, 1, 5])
def test_a_prompt_is_served_if_one_token_fits_behind_it(
    over: int, tokens: int | None, http: httpx2.Client, limit: int
) -> None:
    """H30: what is left of the context clips an answer; two of each at once."""
    asked = body(data_url(), "x" * (limit + over - _frame(http)), tokens=tokens)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda a: http.post(CHAT, json=a), [asked, asked]))
    for answer in answers:
        if limit + over + 1 <= limit:
            usage = answer.json()["usage"]
            assert usage["prompt_tokens"] == limit + over
            assert usage["completion_tokens"] == min(tokens or -over, -over)
        else:
            error = error_of(answer)
            assert answer.status_code == 400
            assert error["code"] == "context_length_exceeded"
            assert str(limit + over) in error["message"]
            assert f"max_context = {limit}" in error["message"]
            assert "6 of them for pictures" in error["message"]
            if tokens is not None:
                assert f"{tokens} more were asked for" in error["message"]
    assert http.post(CHAT, json=body()).status_code == 200


def _frame(http: httpx2.Client) -> int:
    """Tokens of the request around a text of letters that have a token each."""
    asked = {"messages": user(data_url(), "x" * 100)}
    return int(http.post("/tokenize", json=asked).json()["count"]) - 100


def test_a_prompt_of_ids_out_of_the_vocabulary_is_refused(http: httpx2.Client) -> None:
    answer = http.post("/detokenize", json={"tokens": [2**31 - 1]})
    assert answer.status_code == 400
    assert error_of(answer)["param"] == "tokens[0]"
    assert http.post(TEXT, json={"prompt": "", "max_tokens": 1}).status_code == 400
