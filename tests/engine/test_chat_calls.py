"""What a chat of the Python API may be told beside its messages, and what is read of its answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion, ToolCall
from firstlight.errors import RequestError
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm
from tests.engine.tools.templates import HERMES, with_template
from tests.server.scripted import characters, script

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["Rome", "Oslo"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
TEMPLATE = HERMES.replace(
    "<|im_start|>assistant\n{% endif %}",
    "<|im_start|>assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif %}"
    "{# ends with </think> #}",
)
QUESTION = [{"role": "user", "content": "Weather?"}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder: Path = tmp_path_factory.mktemp("calls") / "model"
    with tiny_llm(with_template(tiny_checkpoint("llama"), folder, TEMPLATE)) as llm:
        yield llm


def answered(llm: LLM, monkeypatch: pytest.MonkeyPatch, text: str) -> SamplingParams:
    """Parameters of a request that is answered with ``text``."""
    end = min(llm.parts.model.eos_token_ids)
    script(monkeypatch, {7: [*characters(llm.parts, text), end]})
    return SamplingParams(temperature=0, seed=7, max_tokens=150)


def prompt_of(llm: LLM, **options: Any) -> str:
    """The prompt of the question, as text."""
    ids: list[int] = []
    plain = llm.parts.admission.admit

    def admit(draft: Any, prepared: Any) -> Any:
        sequence = plain(draft, prepared)
        ids.extend(sequence.prompt.ids)
        return sequence

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llm.parts.admission, "admit", admit)
        messages = options.pop("messages", QUESTION)
        llm.chat(messages, SamplingParams(temperature=0, max_tokens=1), **options)
    return str(llm.parts.model.tokenizer.decode(ids))


def test_calls_thoughts_and_content_are_told_apart(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = answered(llm, monkeypatch, f"<think>Hm.</think>I look.\n{CALL}")
    answer = llm.chat(QUESTION, params, tools=[TOOL])
    assert (answer.content, answer.reasoning) == ("I look.", "Hm.")
    (call,) = answer.tool_calls
    assert (call.name, call.values()) == ("weather", {"city": "Rome"})
    assert answer.text.endswith(CALL)
    *_, last = llm.stream_chat(QUESTION, params, tools=[TOOL])
    assert isinstance(last, Completion)
    assert [c.name for c in last.tool_calls] == ["weather"]
    both = llm.chat([QUESTION, QUESTION], params, tools=[TOOL])
    assert [c.content for c in both] == ["I look."] * 2


def test_a_call_that_is_required_is_made_and_valid(llm: LLM) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        params = SamplingParams(temperature=1.5, seed=3, max_tokens=150)
        answer = llm.chat(
            QUESTION, params, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False
        )
        (call,) = answer.tool_calls
        assert call.values()["city"] in ("Rome", "Oslo")
        assert answer.content == ""


def test_an_answers_calls_and_what_they_gave_can_be_given_back(llm: LLM) -> None:
    call = ToolCall("call_1", "weather", '{"city": "Oslo"}')
    turns = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call.as_dict()]},
        {"role": "tool", "tool_call_id": call.id, "content": "Snow."},
    ]
    assert '"arguments": {"city": "Oslo"}' in prompt_of(llm, messages=turns, tools=[TOOL])


def test_tools_are_not_shown_where_none_may_be_called(llm: LLM) -> None:
    assert "weather" in prompt_of(llm, tools=[TOOL])
    assert "weather" not in prompt_of(llm, tools=[TOOL], tool_choice="none")


def test_a_variable_of_the_template_arrives_and_moves_the_thoughts(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    kwargs = {"enable_thinking": True}
    assert prompt_of(llm, chat_template_kwargs=kwargs).rstrip().endswith("<think>")
    assert not prompt_of(llm).rstrip().endswith("<think>")
    params = answered(llm, monkeypatch, "Hm.</think>42")
    answer = llm.chat(QUESTION, params, chat_template_kwargs=kwargs)
    assert (answer.reasoning, answer.content) == ("Hm.", "42")
    assert llm.chat(QUESTION, params).content == "Hm.</think>42"


def test_the_last_message_can_be_gone_on_with(llm: LLM) -> None:
    turns = [*QUESTION, {"role": "assistant", "content": "It is"}]
    assert prompt_of(llm, messages=turns, continue_final_message=True).endswith("It is")
    assert not prompt_of(llm, messages=turns).endswith("It is")


BAD: list[tuple[str, dict[str, Any]]] = [
    ("tools[0].type is missing; accepted: 'function'", {"tools": [{}]}),
    ("tools is 'x'; accepted: a list", {"tools": "x"}),
    ("tools[0].function.name is 'a b'; accepted:", {
        "tools": [{"type": "function", "function": {"name": "a b"}}]}),
    ("tools[0].function.parameter: no such field", {
        "tools": [{"type": "function", "function": {"name": "a", "parameter": {}}}]}),
    ("tools[1].function.name is 'weather'; accepted: a name that", {"tools": [TOOL, TOOL]}),
    ("tool_choice is 'now'; accepted: one of the tools: weather", {
        "tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "now"}}}),
    ("tool_choice is 'maybe'; accepted: none, auto", {"tool_choice": "maybe"}),
    ("tool_choice is 'required'; accepted: none or auto", {"tool_choice": "required"}),
    ("parallel_tool_calls is '1'; accepted", {"parallel_tool_calls": "1"}),
    ("a name of chat_template_kwargs is 'messages'; accepted", {
        "chat_template_kwargs": {"messages": []}}),
    ("chat_template_kwargs.mood: the model's chat template reads no variable", {
        "chat_template_kwargs": {"mood": 1}}),
    ("chat_template_kwargs.enable_thinking is", {
        "chat_template_kwargs": {"enable_thinking": print}}),
    ("continue_final_message is '1'; accepted", {"continue_final_message": "1"}),
    ("continue_final_message: the last message is the user's", {"continue_final_message": True}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "options"), BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_what_makes_no_sense_is_refused_with_its_place(
    message: str, options: dict[str, Any], llm: LLM
) -> None:
    with pytest.raises(RequestError) as caught:
        llm.chat(QUESTION, **options)
    assert str(caught.value).startswith(message)


def test_an_option_that_does_not_exist_is_a_type_error(llm: LLM) -> None:
    with pytest.raises(TypeError, match="tool_choices"):
        llm.chat(QUESTION, tool_choices="auto")  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"role": "user", "content": "a", "contents": "b"}, "messages[0].contents"),
        ({"role": "user", "content": [{"type": "text", "text": "a", "txt": "b"}]},
         "messages[0].content[0].txt"),
        ({"role": "user", "content": [{"type": "image", "image": "a", "resized_height": 5}]},
         "messages[0].content[0].resized_height"),
        ({"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": "data:,", "max_pixels": 5}}]},
         "messages[0].content[0].image_url.max_pixels"),
    ],
)  # fmt: skip
def test_a_field_of_a_message_that_nobody_reads_is_refused(
    message: dict[str, Any], field: str, llm: LLM
) -> None:
    with pytest.raises(RequestError) as caught:
        llm.chat([message])
    assert str(caught.value).startswith(f"{field}: no such field")


def test_arguments_of_a_call_that_are_no_object_are_an_error() -> None:
    for arguments in ("[1]", '{"a": '):
        with pytest.raises(ValueError, match=r"no object|Expecting"):
            ToolCall("a", "f", arguments).values()
    assert json.loads(ToolCall("a", "f", "{}").as_dict()["function"]["arguments"]) == {}
