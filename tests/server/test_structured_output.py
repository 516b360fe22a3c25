"""``response_format`` and ``structured_outputs``: answers that a program can read."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx2
import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

from tests.server.asking import CHAT, TEXT, body, data_url, error_of, joined, streamed, text_of

SCHEMA = {
    "type": "object",
    "properties": {
        "shape": {"enum": ["circle", "square"]},
        "size": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["shape", "size"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "it", "schema": SCHEMA, "strict": True}}


class Shape(BaseModel):
    """What OpenAI's client is asked to parse."""

    word: str = Field(pattern="^[a-z]{3}$")
    flags: list[bool] = Field(max_length=2)


def asked(**fields: Any) -> dict[str, Any]:
    return body(data_url(), "What is it?", tokens=300, ignore_eos=False, **fields)


def test_whole_answers_and_streams_are_valid_under_the_schema(http: httpx2.Client) -> None:
    request = asked(response_format=FORMAT, temperature=1.2, seed=1, n=3)
    whole = http.post(CHAT, json=request).json()
    chunks = streamed(http, CHAT, request)
    texts = [text_of(whole, i) for i in range(3)]
    assert [joined(chunks, i) for i in range(3)] == texts
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert {choice["finish_reason"] for choice in whole["choices"]} == {"stop"}


def test_openais_client_parses_into_a_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model="qwen3_vl",
        messages=[{"role": "user", "content": "Hello"}],
        response_format=Shape,
        max_tokens=300,
        seed=1,
    )
    assert isinstance(answer.choices[0].message.parsed, Shape)


def test_text_completions_have_a_form_too(http: httpx2.Client) -> None:
    fields = {"structured_outputs": {"regex": "[0-9]{4}"}}
    answer = http.post(TEXT, json={"prompt": "Hello", "max_tokens": 9} | fields).json()
    assert re.fullmatch("[0-9]{4}", text_of(answer))


@pytest.mark.parametrize(
    ("form", "pattern"),
    [({"choice": ["one", "two"]}, "one|two"), ({"grammar": 'start: "a" | "b"'}, "[ab]")],
)
def test_further_forms_are_kept_to(form: Any, pattern: str, http: httpx2.Client) -> None:
    answer = http.post(CHAT, json=asked(structured_outputs=form)).json()
    assert re.fullmatch(pattern, text_of(answer))


def test_an_answer_that_its_limit_cuts_says_so(http: httpx2.Client) -> None:
    answer = http.post(CHAT, json=asked(response_format=FORMAT) | {"max_tokens": 2}).json()
    assert answer["choices"][0]["finish_reason"] == "length"


BAD_SCHEMA = {"name": "it", "schema": {"properties": {"a": {"not": {}}}}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema", "json_schema": BAD_SCHEMA}},
         "response_format.json_schema.schema.properties.a"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": FORMAT, "ignore_eos": True}, "ignore_eos"),
        ({"response_format": FORMAT, "min_tokens": 2}, "min_tokens"),
        ({"response_format": FORMAT, "structured_outputs": {"regex": "a"}},
         "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"structured_outputs": {"whitespace_pattern": "a"}},
         "structured_outputs.whitespace_pattern"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_to_is_refused_with_the_place(
    fields: Any, param: str | None, http: httpx2.Client
) -> None:
    answer = http.post(CHAT, json=asked() | fields)
    assert answer.status_code == 400
    assert error_of(answer)["param"] == param


def test_a_schema_too_large_to_be_followed_is_the_requests_own_fault(http: httpx2.Client) -> None:
    many = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(3000)}}
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": many}}
    answer = http.post(CHAT, json=asked(response_format=form), timeout=120)
    assert answer.status_code == 400, answer.text
    assert "cannot be" in error_of(answer)["message"]
