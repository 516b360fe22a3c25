"""The schema at ``/openapi.json`` says what the server does, refusals included."""

from __future__ import annotations

from typing import Any

import httpx2
import jsonschema
import pytest

from firstlight.engine.build import Parts
from tests.server.asking import CHAT, TEXT, body, data_url
from tests.server.running import KEYS, Running, running

Schema = dict[str, Any]


@pytest.fixture(scope="module")
def schema(server: Running) -> Schema:
    with server.client() as http:
        return dict(http.get("/openapi.json").json())


def check(schema: Schema, path: str, response: httpx2.Response, method: str = "post") -> None:
    """The status, the type and the form of a response are documented."""
    documented = schema["paths"][path][method]["responses"][str(response.status_code)]["content"]
    kind = response.headers["content-type"].split(";")[0]
    form = documented[kind]["schema"]
    if kind == "application/json":
        jsonschema.validate(response.json(), form | {"components": schema["components"]})


WHOLE = [
    (CHAT, body("?", data_url(), logprobs=True, top_logprobs=2, timings=True, n=2)),
    (CHAT, body("?", stream=True)),
    (TEXT, {"prompt": ["a", "b"], "logprobs": 1, "timings": True}),
    (TEXT, {"prompt": "a", "stream": True}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 3, "timings": True}),
    ("/v1/responses", {"input": "a", "max_output_tokens": 3, "stream": True}),
    ("/tokenize", {"prompt": "a", "return_token_strs": True}),
    ("/tokenize", {"messages": [{"role": "user", "content": "a"}]}),
    ("/detokenize", {"tokens": [1, 2]}),
]


@pytest.mark.parametrize(("path", "asked"), WHOLE, ids=[path for path, _ in WHOLE])
def test_answers_have_the_documented_form(
    http: httpx2.Client, schema: Schema, path: str, asked: Schema
) -> None:
    response = http.post(path, json=asked)
    assert response.status_code == 200
    check(schema, path, response)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/graphs", "/version", "/health", "/metrics"])
def test_facts_have_the_documented_form(http: httpx2.Client, schema: Schema, path: str) -> None:
    response = http.get(path)
    assert response.status_code == 200
    check(schema, path, response, "get")


def test_one_model_has_the_documented_form(http: httpx2.Client, schema: Schema) -> None:
    name = http.get("/v1/models").json()["data"][0]["id"]
    for asked, status in ((name, 200), ("another", 404)):
        response = http.get(f"/v1/models/{asked}")
        assert response.status_code == status
        check(schema, "/v1/models/{name}", response, "get")


@pytest.mark.parametrize("path", [CHAT, TEXT, "/v1/responses", "/tokenize", "/detokenize"])
def test_refusals_are_documented(http: httpx2.Client, schema: Schema, path: str) -> None:
    plain = {"content": b"{}", "headers": {"content-type": "text/plain"}}
    needed = {"messages": [{"role": "user", "content": ""}], "prompt": "", "input": "",
              "tokens": []}  # fmt: skip
    known = schema["components"]["schemas"]
    ref = schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = known[ref["$ref"].rsplit("/", 1)[1]]["properties"]
    asked = {name: value for name, value in needed.items() if name in fields}
    if len(asked) > 1:
        del asked["prompt"]
    for options, status in (
        ({"json": {}}, 400),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, 400),
        (plain, 415),
        ({"json": asked | {"model": "another"}}, 404),
    ):
        response = http.post(path, **options)
        assert response.status_code == status, response.text
        check(schema, path, response)


def test_a_field_that_is_not_served_lists_the_values_that_are_accepted(schema: Schema) -> None:
    models = schema["components"]["schemas"]
    chat = models["ChatRequest"]["properties"]
    assert chat["store"]["enum"] == [None, False]
    assert chat["audio"]["enum"] == [None]
    assert "enum" not in chat["temperature"]
    assert models["AssistantMessage"]["properties"]["refusal"]["enum"] == [None]


def test_no_answer_of_another_framework_is_documented(schema: Schema) -> None:
    for operations in schema["paths"].values():
        for operation in operations.values():
            assert "422" not in operation["responses"]
    assert "HTTPValidationError" not in schema["components"]["schemas"]


def test_keys_are_in_the_schema_where_they_are_needed(parts: Parts, schema: Schema) -> None:
    assert "securitySchemes" not in schema["components"]
    with running(parts, keys=KEYS) as server, server.client() as http:
        headers = {"authorization": f"Bearer {KEYS[0]}"}
        keyed = http.get("/openapi.json", headers=headers).json()
    assert keyed["security"] == [{"key": []}]
    assert keyed["paths"]["/health"]["get"]["security"] == []
