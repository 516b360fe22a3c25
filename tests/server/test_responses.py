"""``/v1/responses``: what a chat says, in the form of responses, whole and as events."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import openai
import pytest
from openai.types.responses import response_create_params

from firstlight.server.failures import Failure
from firstlight.server.responses_answer import ResponseEvents
from firstlight.server.schemas.responses import ResponsesRequest
from tests.conftest import TinyCheckpoint
from tests.engine.tools.templates import THINKING, with_template
from tests.server.asking import CHAT, body, data_url, error_of, text_of
from tests.server.running import Running, running, tiny_parts
from tests.server.scripted import characters, script

PATH = "/v1/responses"
PICTURE = data_url()
SCHEMA = {
    "type": "object",
    "properties": {"shape": {"enum": ["circle", "square"]}},
    "required": ["shape"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "name": "now", "parameters": {
    "type": "object", "properties": {}, "additionalProperties": False}}  # fmt: skip


def asked(**fields: Any) -> dict[str, Any]:
    return {"input": "What is it?", "temperature": 0, "max_output_tokens": 6,
            "ignore_eos": True} | fields  # fmt: skip


def shown(*parts: str) -> list[dict[str, Any]]:
    content = [
        {"type": "input_image", "image_url": part, "detail": "auto"}
        if part.startswith("data:")
        else {"type": "input_text", "text": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def events_of(http: httpx2.Client, request: dict[str, Any]) -> list[dict[str, Any]]:
    """The events of a stream; each says its type twice."""
    found = []
    with http.stream("POST", PATH, json=request | {"stream": True}) as response:
        assert response.status_code == 200, response.read()
        for frame in response.read().decode().split("\n\n"):
            if frame:
                name, data = frame.split("\n")
                event = json.loads(data.removeprefix("data: "))
                assert name == f"event: {event['type']}"
                found.append(event)
    return found


@pytest.mark.parametrize(
    "given",
    ["What is it?", shown("What is it?"), shown(PICTURE, "What is it?")],
    ids=["text", "part", "picture"],
)
def test_it_says_what_the_chat_says(given: Any, http: httpx2.Client) -> None:
    answer = http.post(PATH, json=asked(input=given, instructions="Be brief.")).json()
    chat = body(*([PICTURE] if "data:" in str(given) else []), "What is it?")
    chat["messages"].insert(0, {"role": "system", "content": "Be brief."})
    expected = http.post(CHAT, json=chat).json()
    assert answer["output"][0]["content"][0]["text"] == text_of(expected)
    assert answer["status"] == "incomplete"
    assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
    used, other = answer["usage"], expected["usage"]
    assert used["input_tokens"] == other["prompt_tokens"]
    assert used["output_tokens"] == other["completion_tokens"] == 6
    images = [used["input_tokens_details"], other["prompt_tokens_details"]]
    assert images[0]["image_tokens"] == images[1]["image_tokens"]


def test_events_come_in_order_and_say_what_the_whole_answer_says(http: httpx2.Client) -> None:
    request = asked(input=shown(PICTURE, "What is it?"))
    whole = http.post(PATH, json=request).json()
    events = events_of(http, request)
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    kinds = [e["type"].removeprefix("response.") for e in events]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert set(kinds[4:-4]) == {"output_text.delta"}
    assert kinds[-4:] == [
        "output_text.done", "content_part.done", "output_item.done", "incomplete",
    ]  # fmt: skip
    text = whole["output"][0]["content"][0]["text"]
    assert "".join(e["delta"] for e in events if "delta" in e) == text
    last = events[-1]["response"]
    assert last["output"][0]["content"] == whole["output"][0]["content"]
    for field in ("output_tokens", "input_tokens", "total_tokens"):
        assert last["usage"][field] == whole["usage"][field]


def test_openais_client_reads_answers_and_events(client: openai.OpenAI, server: Running) -> None:
    fields: dict[str, Any] = {
        "model": server.service.model.names[0],
        "input": shown(PICTURE, "What is it?"),
        "temperature": 0,
        "max_output_tokens": 100,
        "text": {"format": {"type": "json_schema", "name": "it", "schema": SCHEMA}},
    }
    answer = client.responses.create(**fields)
    assert answer.output_text
    with client.responses.stream(**fields) as stream:
        texts = [e.delta for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert "".join(texts) == final.output_text == answer.output_text


def test_an_error_on_the_way_is_an_event_that_clients_do_not_overlook() -> None:
    failure = Failure(503, "lost", "server_error", None, "engine_fault")

    async def nothing() -> AsyncGenerator[Any, None]:
        return
        yield

    events = ResponseEvents(nothing(), dict)
    last = events.encoded(events.failed(failure)).decode()
    assert last.startswith("event: error\ndata: ")
    told = json.loads(last.split("data: ")[1])
    assert (told["type"], told["code"], told["message"]) == ("error", "engine_fault", "lost")
    assert told["error"]["type"] == "server_error"


def test_a_form_is_kept_to(http: httpx2.Client) -> None:
    form = {"type": "json_schema", "name": "it", "schema": SCHEMA, "strict": True}
    request = asked(text={"format": form}, max_output_tokens=200, ignore_eos=False)
    answer = http.post(PATH, json=request).json()
    assert answer["status"] == "completed"
    assert answer["text"]["format"]["schema"] == SCHEMA
    jsonschema.validate(json.loads(answer["output"][0]["content"][0]["text"]), SCHEMA)


def test_timings_come_when_asked_for(http: httpx2.Client) -> None:
    answer = http.post(PATH, json=asked(timings=True))
    assert answer.json()["timings"]
    assert "ttft" in answer.headers["server-timing"]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("previous_response_id", {"previous_response_id": "resp_1"}),
    ("store", {"store": True}),
    ("background", {"background": True}),
    ("reasoning", {"reasoning": {"effort": "low"}}),
    ("top_logprobs", {"top_logprobs": 2}),
    ("tools[0].type", {"tools": [{"type": "web_search"}]}),
    ("input", {"input": []}),
    ("input[0]", {"input": [{"type": "item_reference", "id": "a"}]}),
    ("input[0].content[0]", {"input": [{"role": "user", "content": [
        {"type": "input_file", "file_id": "a"}]}]}),
    ("input[0].content[0].file_id", {"input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": PICTURE, "file_id": "a"}]}]}),
    ("input[0].content[1]", {"instructions": "Be brief.",
        "input": shown("a", "data:image/png;base64,AAAA")}),
    ("text.format.schema", {"text": {"format": {
        "type": "json_schema", "name": "a", "schema": {"not": {}}}}, "ignore_eos": False}),
    ("text.format.schema", {"text": {"format": {
        "type": "json_schema", "name": "a", "schema": {"$ref": "#"}}}, "ignore_eos": False}),
    ("text.format.schema", {"text": {"format": {"type": "text", "schema": {}}}}),
    ("text.format.name", {"text": {"format": {"type": "json_object", "name": "a"}}}),
    ("input[0].arguments", {"input": [
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{"}]}),
    ("input[0]", {"input": [{"role": "assistant", "content": [
        {"type": "input_image", "image_url": PICTURE}]}]}),
    ("tools[0].parameters", {"tools": [TOOL | {"parameters": {"type": "array"}}]}),
    ("tools", {"tools": [TOOL]}),
    ("max_output_tokens", {"max_output_tokens": 0}),
    ("inputs", {"inputs": "a"}),
]  # fmt: skip


@pytest.mark.parametrize(("place", "fields"), BAD, ids=[place for place, _ in BAD])
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_served_is_refused_with_its_place(
    place: str, fields: dict[str, Any], stream: bool, http: httpx2.Client
) -> None:
    answer = http.post(PATH, json=asked(stream=stream) | fields)
    assert answer.status_code == 400, answer.text
    error = error_of(answer)
    assert error["message"].startswith(place), answer.text
    assert str(error["param"]).startswith(place), answer.text


def test_every_field_of_openais_api_is_known() -> None:
    """Each is honoured or refused; of none it is said that there is no such field."""
    known = set(response_create_params.ResponseCreateParamsStreaming.__annotations__)
    known |= set(response_create_params.ResponseCreateParamsBase.__annotations__)
    assert len(known) > 25
    assert known - set(ResponsesRequest.model_fields) == set()


@pytest.fixture(scope="module")
def thinker(
    tiny_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A model that thinks, and calls functions as Hermes does."""
    folder: Path = tmp_path_factory.mktemp("responses") / "model"
    with running(tiny_parts(with_template(tiny_checkpoint("llama"), folder, THINKING))) as server:
        yield server


CALL = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


def test_thoughts_text_and_calls_are_items_of_their_own(
    thinker: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = thinker.service.parts
    answer = characters(parts, f"Hm.</think>Wait. {CALL}")
    script(monkeypatch, {5: [*answer, min(parts.model.eos_token_ids)]})
    request = asked(seed=5, tools=[TOOL], max_output_tokens=120, ignore_eos=False)
    with thinker.client() as http:
        whole = http.post(PATH, json=request).json()
        events = events_of(http, request)
    for output in (whole["output"], events[-1]["response"]["output"]):
        thought, text, call = output
        assert thought["content"][0] == {"type": "reasoning_text", "text": "Hm."}
        assert text["content"][0]["text"] == "Wait."
        assert (call["name"], call["arguments"], call["status"]) == ("now", "{}", "completed")
    assert whole["status"] == "completed"
    assert whole["usage"]["output_tokens_details"]["reasoning_tokens"] == len(
        characters(parts, "Hm.</think>")
    )
    added = [e for e in events if e["type"] == "response.output_item.added"]
    assert [e["output_index"] for e in added] == [0, 1, 2]
    done = [e for e in events if e["type"] == "response.output_item.done"]
    assert [e["item"]["id"] for e in done] == [e["item"]["id"] for e in added]


def test_an_output_can_be_given_back_with_what_its_calls_gave(thinker: Running) -> None:
    output: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
         "content": [{"type": "output_text", "text": "Wait.", "annotations": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "now",
         "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "call_1", "output": "12:00"},
    ]  # fmt: skip
    with thinker.client() as http:
        given = [*shown("What time is it?"), *output]
        answer = http.post(PATH, json=asked(input=given, tools=[TOOL]))
        assert answer.status_code == 200, answer.text
        bad = [*shown("a"), output[2] | {"arguments": "{"}]
        error = error_of(http.post(PATH, json=asked(input=bad, tools=[TOOL])))
    assert error["param"] == "input[1].arguments"
