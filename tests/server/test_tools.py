"""Tools: shown to the model, called by it, and called because the request says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import openai
import pytest
import torch

from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.chat_options import ChatOptions
from firstlight.engine.tools.formats import FORMATS, call_form
from firstlight.errors import RequestError
from firstlight.sampling import Grammars
from tests.conftest import TinyCheckpoint
from tests.engine.tools.templates import CODER, HERMES, LLAMA, MISTRAL, with_template
from tests.server.asking import CHAT, body, data_url, error_of, streamed, user
from tests.server.running import Running, running, tiny_parts
from tests.server.scripted import characters, script

CITY = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Oslo"]},
        "days": {"type": "integer", "minimum": 0, "maximum": 9},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY, "strict": True,
                                      "description": "Weather of a city <|im_end|>."}},
    {"type": "function", "function": {"name": "now", "parameters": {
        "type": "object", "properties": {}, "additionalProperties": False}}},
]  # fmt: skip
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
NOW = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(scope="module")
def tooled(tiny_checkpoint: TinyCheckpoint, folder: Path) -> Iterator[Running]:
    """A server of a model that writes calls as Hermes does."""
    parts = tiny_parts(with_template(tiny_checkpoint("qwen3_vl"), folder / "hermes", HERMES))
    with running(parts) as server:
        yield server
    assert parts.pipeline is not None
    parts.pipeline.close()


@pytest.fixture
def http(tooled: Running) -> Iterator[httpx2.Client]:
    with tooled.client() as client:
        yield client
    assert tooled.idle()


@pytest.fixture
def client(tooled: Running) -> Iterator[openai.OpenAI]:
    url = f"{tooled.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


def asked(**fields: Any) -> dict[str, Any]:
    return body("Weather?", tokens=150, ignore_eos=False, tools=TOOLS, **fields)


def answers(monkeypatch: pytest.MonkeyPatch, tooled: Running, text: str) -> dict[str, Any]:
    """Fields of a request that is answered with ``text``."""
    parts = tooled.service.parts
    script(monkeypatch, {77: [*characters(parts, text), min(parts.model.eos_token_ids)]})
    return {"seed": 77}


def calls_of(message: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        (c["function"]["name"], json.loads(c["function"]["arguments"]))
        for c in message["tool_calls"]
    ]


def test_a_call_is_read_from_the_answer(
    http: httpx2.Client, tooled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = answers(monkeypatch, tooled, f"I look.\n{CALL}\n{NOW}")
    choice = http.post(CHAT, json=asked(**said)).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] == "I look."
    assert calls_of(choice["message"]) == [("weather", {"city": "Rome"}), ("now", {})]
    ids = [call["id"] for call in choice["message"]["tool_calls"]]
    assert len(set(ids)) == 2
    assert all(i.startswith("call_") for i in ids)


def test_a_stream_tells_the_name_first_and_then_the_arguments_as_they_come(
    http: httpx2.Client, tooled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = answers(monkeypatch, tooled, f"I look.\n{CALL}")
    *chunks, done = streamed(http, CHAT, asked(**said))
    assert done == "[DONE]"
    deltas = [c["choices"][0]["delta"] for c in chunks]
    assert "".join(d.get("content") or "" for d in deltas) == "I look."
    calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
    assert calls[0]["function"] == {"name": "weather", "arguments": ""}
    assert calls[0]["type"] == "function"
    assert all(set(call) == {"index", "function"} for call in calls[1:])
    pieces = [call["function"]["arguments"] for call in calls[1:]]
    assert json.loads("".join(pieces)) == {"city": "Rome"}
    assert len(pieces) > 5
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_openais_client_gathers_a_streamed_call(
    client: openai.OpenAI, tooled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = answers(monkeypatch, tooled, CALL)
    with client.chat.completions.stream(
        model=tooled.service.model.names[0],
        messages=[{"role": "user", "content": "Weather?"}],
        tools=TOOLS,
        max_tokens=150,
        seed=said["seed"],
    ) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    call = (choice.message.tool_calls or [])[0]
    assert (call.function.name, call.function.parsed_arguments) == ("weather", {"city": "Rome"})


def test_an_answer_without_a_call_is_content(http: httpx2.Client) -> None:
    choice = http.post(CHAT, json=asked()).json()["choices"][0]
    assert choice["message"]["content"]
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] != "tool_calls"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_is_required_is_made_and_valid(
    seed: int, stream: bool, http: httpx2.Client
) -> None:
    request = asked(tool_choice="required", parallel_tool_calls=False, temperature=1.3, seed=seed)
    if stream:
        *chunks, _ = streamed(http, CHAT, request)
        found = [d["tool_calls"][0] for c in chunks if "tool_calls" in (d := delta_of(c))]
        name = found[0]["function"]["name"]
        arguments = json.loads("".join(f["function"]["arguments"] for f in found))
        reason = chunks[-1]["choices"][0]["finish_reason"]
    else:
        choice = http.post(CHAT, json=request).json()["choices"][0]
        ((name, arguments),) = calls_of(choice["message"])
        assert choice["message"]["content"] is None
        reason = choice["finish_reason"]
    assert reason in ("tool_calls", "length")
    if name == "weather":
        jsonschema.validate(arguments, CITY)


def delta_of(chunk: Any) -> dict[str, Any]:
    return dict(chunk["choices"][0]["delta"])


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("name", list(FORMATS))
def test_calls_of_strict_tools_are_enforced_and_text_stays_free(
    name: str, special: bool, tooled: Running
) -> None:
    tokenizer, ends = tooled.service.parts.model.tokenizer, tooled.service.parts.model.eos_token_ids
    chosen = FORMATS[name]
    # Any special token will do for the marker.
    ids = {chosen.opening: max(tokenizer.added_tokens_decoder)} if special else {}
    tools = [(f"tools[{i}].function", tool["function"]) for i, tool in enumerate(TOOLS)]
    form = call_form(chosen, tools, several=True, required=False, special=ids)
    tagged = "\n</tool_call> Done."
    closing = {"hermes": tagged, "qwen3_coder": tagged, "mistral": "]"}.get(name, "")
    before = {"hermes": "\n", "qwen3_coder": "\n", "mistral": "["}.get(name, "")
    objects = [written(name, '{"city": "Rome"}'), written(name, '{"city": "Pari')]
    heads = ["", "I look. "] if chosen.opening else [""]
    for head in heads:
        opening = [ids[chosen.opening]] if special and chosen.opening else chosen.opening
        for call, ok in zip(objects, (True, False), strict=True):
            text = before + call + (closing if ok else "")
            assert follows(form, tokenizer, ends, head, opening, text) == ok
    assert follows(form, tokenizer, ends, "It rains in Paris.", "", "")


def written(name: str, arguments: str) -> str:
    """A call as a family writes it, or its beginning where that of the arguments is given."""
    whole = arguments.endswith("}")
    if name == "mistral_args":
        return f"weather[ARGS]{arguments}"
    if name == "qwen3_coder":
        city = arguments.split('"')[3]
        tail = "\n</parameter>\n</function>" if whole else ""
        return f"<function=weather>\n<parameter=city>\n{city}{tail}"
    member = "parameters" if name == "llama3_json" else "arguments"
    return f'{{"name": "weather", "{member}": {arguments}' + "}" * whole


def test_parameters_of_a_tool_that_is_not_strict_need_not_be_enforceable() -> None:
    loose = {"name": "loose", "parameters": {"not": {}}}
    tools = [("tools[0].function", loose), ("tools[1].function", TOOLS[0]["function"])]
    for required in (False, True):
        form = call_form(FORMATS["hermes"], tools, several=True, required=required, special={})
        assert ("not" in form.schemas[0][1]) == required


def follows(form: Any, tokenizer: Any, ends: Any, *parts: Any) -> bool:
    """Whether an answer of these texts and tokens may be generated, and end."""
    ids: list[int] = []
    for part in parts:
        if part:
            texts = (
                part
                if isinstance(part, list)
                else [i for c in part for i in tokenizer(c, add_special_tokens=False)["input_ids"]]
            )
            ids += texts
    row = torch.zeros(len(tokenizer))
    try:
        Grammars(tokenizer, ends).start(form).restrict_(row, ids, ())
    except RequestError:
        return False
    return bool(row[min(ends)] == 0)


def test_a_named_tool_is_the_one_that_is_called(http: httpx2.Client) -> None:
    choice = {"type": "function", "function": {"name": "weather"}}
    request = asked(tool_choice=choice, n=4, seed=1, temperature=1.3)
    choices = http.post(CHAT, json=request).json()["choices"]
    whole = [c for c in choices if c["finish_reason"] == "tool_calls"]
    assert whole
    for answer in whole:
        ((name, arguments),) = calls_of(answer["message"])
        assert name == "weather"
        jsonschema.validate(arguments, CITY)


def test_tools_are_shown_to_the_model_unless_they_must_not_be_called(
    http: httpx2.Client, tooled: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = http.post(CHAT, json=body()).json()["usage"]["prompt_tokens"]
    said = answers(monkeypatch, tooled, CALL)
    none = http.post(CHAT, json=asked(tool_choice="none", **said)).json()
    shown = http.post(CHAT, json=asked()).json()["usage"]["prompt_tokens"]
    assert abs(none["usage"]["prompt_tokens"] - plain) < 20
    assert shown > plain + 100
    assert none["choices"][0]["message"]["content"] == CALL


def test_control_tokens_in_a_tools_description_are_text(tooled: Running) -> None:
    admission = tooled.service.parts.admission
    end = min(tooled.service.parts.model.eos_token_ids)
    counts = []
    for description in ("A", "A <|im_end|>"):
        tool = {"type": "function", "function": {"name": "f", "description": description}}
        draft = admission.read_chat(user("Hi"), SamplingParams(), options=ChatOptions([tool]))
        counts.append(admission.admit(draft, []).prompt.ids.count(end))
    assert counts[0] == counts[1] > 0


def conversation(content: Any) -> list[dict[str, Any]]:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}
    return [
        *user("Look."),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": content},
        *user("What is in it?"),
    ]


def test_a_tools_answer_may_hold_a_picture(http: httpx2.Client) -> None:
    """Its span is in the prompt, and another picture gives another prompt (case H17)."""
    usages = []
    for content in ("Here.", user("Here.", data_url())[0]["content"]):
        request = body(tokens=4) | {"messages": conversation(content)}
        answer = http.post(CHAT, json=request)
        assert answer.status_code == 200, answer.text
        usages.append(answer.json()["usage"]["prompt_tokens_details"]["image_tokens"])
    assert usages == [0, 6]


BAD: list[tuple[str, dict[str, Any]]] = [
    ("tools", {"tools": [TOOLS[1], TOOLS[1]]}),
    ("tool_choice", {"tools": None, "tool_choice": "required"}),
    ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "none"}}}),
    ("tool_choice", {"tool_choice": "maybe"}),
    ("tools[0].function.parameters", {"tools": [{"type": "function", "function": {
        "name": "a", "parameters": {"type": ["object", "null"]}}}]}),
    ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
    ("tools[0].type", {"tools": [{"type": "web_search", "function": {"name": "a"}}]}),
    ("tools[1].function.parameters", {"tool_choice": "required", "tools": [
        TOOLS[1],
        {"type": "function", "function": {"name": "a", "parameters": {"not": {}}}}]}),
    ("messages[1].tool_calls[0].function.arguments", {"messages": [*user("a"), {
        "role": "assistant", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{"}}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("param", "fields"), BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_what_makes_no_sense_is_refused_with_the_place(
    param: str, fields: dict[str, Any], http: httpx2.Client
) -> None:
    answer = http.post(CHAT, json=asked() | fields)
    assert answer.status_code == 400
    error = error_of(answer)
    assert param in (error["param"], *error["message"].split()), error


def test_a_refusal_repeats_the_name_that_is_at_fault(http: httpx2.Client) -> None:
    none = {"type": "function", "function": {"name": "nobody"}}
    refused = error_of(http.post(CHAT, json=asked(tool_choice=none)))["message"]
    assert "'nobody' is none of the tools" in refused
    twice = error_of(http.post(CHAT, json=asked() | {"tools": [TOOLS[1], TOOLS[1]]}))["message"]
    assert f"'{TOOLS[1]['function']['name']}'" in twice


def test_tools_are_refused_where_the_template_has_no_place_for_them(server: Running) -> None:
    with server.client() as http:
        assert error_of(http.post(CHAT, json=asked()))["param"] == "tools"
        lost = body() | {"messages": conversation("Here.")}
        assert error_of(http.post(CHAT, json=lost))["param"] == "messages[1].tool_calls"


@pytest.mark.parametrize("name", ["llama", "mistral", "coder"])
def test_other_families_are_made_to_call_in_their_own_way(
    name: str, tiny_checkpoint: TinyCheckpoint, folder: Path
) -> None:
    template = {"llama": LLAMA, "mistral": MISTRAL, "coder": CODER}[name]
    parts = tiny_parts(with_template(tiny_checkpoint("llama"), folder / name, template))
    with running(parts) as server, server.client() as http:
        request = asked(tool_choice="required", parallel_tool_calls=False, seed=1, temperature=1.2)
        choice = http.post(CHAT, json=request).json()["choices"][0]
        assert calls_of(choice["message"])[0][0] in ("weather", "now")
        assert choice["message"]["content"] is None
        if name == "mistral":
            assert len(choice["message"]["tool_calls"][0]["id"]) == 9
