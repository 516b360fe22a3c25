"""Whatever stands in whichever field: an answer or a refusal in OpenAI's form, never a failure."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from firstlight.server.schemas.chat import ChatRequest
from firstlight.server.schemas.completion import CompletionRequest
from firstlight.server.schemas.responses import ResponsesRequest
from firstlight.server.schemas.tokens import DetokenizeRequest, TokenizeRequest
from tests.server.asking import CHAT, TEXT, body, data_url, error_of
from tests.server.running import Running

ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**63, -(2**63), 10**400, 0.5, -0.0, 1e300, "", "x",
    "\u0000", "\ud800", "🫠" * 50, "NaN", [], [None], [[]], ["x"], [0], [-1], [2**40], {}, {"": 1},
    {"type": "text"}, {"type": "json_schema"}, {"role": "user"}, [{"role": "user", "content": 1}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}],
    [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}],
    [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "["}],
    [{"type": "function_call_output", "call_id": "a", "output": []}], [{"type": "reasoning"}],
    {"format": {"type": "json_schema", "schema": {"not": {}}}}, {"5": 1e300}, {"enable": True},
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": data_url()[:90]}}]}],
]  # fmt: skip
CASES: list[tuple[str, type[BaseModel], dict[str, Any]]] = [
    (CHAT, ChatRequest, body(tokens=2)),
    (TEXT, CompletionRequest, {"prompt": "Hello", "max_tokens": 2}),
    ("/v1/responses", ResponsesRequest, {"input": "Hello", "max_output_tokens": 2}),
    ("/tokenize", TokenizeRequest, {"prompt": "Hello"}),
    ("/detokenize", DetokenizeRequest, {"tokens": [5]}),
]


def ask(http: httpx2.Client, path: str, asked: dict[str, Any]) -> None:
    """The request, which must not fail."""

    text = json.dumps(asked).encode("utf-8", "surrogatepass")
    answer = http.post(path, content=text, headers={"content-type": "application/json"})
    assert answer.status_code in (200, 400, 404), (asked, answer.text)
    if answer.status_code != 200:
        error_of(answer)


@pytest.mark.parametrize(("path", "model", "asked"), CASES, ids=[case[0] for case in CASES])
def test_a_sample_of_odd_values_in_every_field(
    path: str, model: type[BaseModel], asked: dict[str, Any], http: httpx2.Client
) -> None:
    draw = random.Random(7)
    for name in model.model_fields:
        for value in draw.sample(ODD, 2):
            ask(http, path, asked | {name: value})


@pytest.mark.slow
@pytest.mark.parametrize(("path", "model", "asked"), CASES, ids=[case[0] for case in CASES])
def test_every_odd_value_in_every_field_and_in_pairs(
    path: str, model: type[BaseModel], asked: dict[str, Any], http: httpx2.Client, server: Running
) -> None:
    names = list(model.model_fields)
    draw = random.Random(11)
    for name in names:
        for value in ODD:
            ask(http, path, asked | {name: value})
            ask(http, path, asked | {name: value, draw.choice(names): draw.choice(ODD)})
    assert server.service.engine.loop.faults == 0
    assert http.get("/health").status_code == 200
