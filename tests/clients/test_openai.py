"""OpenAI's own client, unmodified, against the bundled model."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any, Literal

import httpx2
import openai
import pytest
from pydantic import BaseModel

from firstlight.demo import DemoPicture, pictures
from tests.clients.serving import Served

MODEL = "firstlight-demo"
ASKED: list[Any] = [{"role": "user", "content": "hello"}]
WEATHER: Any = {
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


class Shape(BaseModel):
    """A form without free text and numbers, which a model of a few shapes may write for ever."""

    shape: Literal["circle", "square"]
    large: bool


@pytest.fixture
def client(bundled: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{bundled.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def tools(tooled: Served) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tooled.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def shown(picture: DemoPicture) -> str:
    return "data:image/png;base64," + base64.b64encode(picture.path.read_bytes()).decode()


def example() -> DemoPicture:
    return next(picture for picture in pictures() if picture.in_distribution)


def about(picture: DemoPicture) -> list[Any]:
    url = {"url": shown(picture), "detail": "auto"}
    content = [{"type": "image_url", "image_url": url}, {"type": "text", "text": picture.question}]
    return [{"role": "user", "content": content}]


def test_a_question_about_a_picture_is_answered(client: openai.OpenAI) -> None:
    picture = example()
    answer = client.chat.completions.create(model=MODEL, messages=about(picture), temperature=0)
    assert answer.choices[0].message.content == picture.actual
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None


def test_a_stream_says_the_same(client: openai.OpenAI) -> None:
    picture = example()
    with client.chat.completions.create(
        model=MODEL,
        messages=about(picture),
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    ) as stream:
        *chunks, last = stream
    said = "".join(c.choices[0].delta.content or "" for c in chunks)
    assert said == picture.actual
    assert last.choices == []
    assert last.usage is not None


def test_the_helper_for_streams_gathers_a_whole_answer(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=ASKED, temperature=0) as stream:
        kinds = {event.type for event in stream}
        whole = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    plain = client.chat.completions.create(model=MODEL, messages=ASKED, temperature=0)
    assert whole.choices[0].message.content == plain.choices[0].message.content


def test_many_ask_at_once(bundled: Served) -> None:
    async def ask() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{bundled.url}/v1", api_key="none") as client:
            one = client.chat.completions.create
            asked = [one(model=MODEL, messages=ASKED, temperature=0) for _ in range(8)]
            return [a.choices[0].message.content for a in await asyncio.gather(*asked)]

    answers = asyncio.run(ask())
    assert len(set(answers)) == 1
    assert answers[0]


def test_an_asynchronous_stream_can_be_left(bundled: Served) -> None:
    async def ask() -> None:
        async with openai.AsyncOpenAI(base_url=f"{bundled.url}/v1", api_key="none") as client:
            stream = await client.chat.completions.create(
                model=MODEL, messages=ASKED, stream=True, extra_body={"ignore_eos": True}
            )
            async for _ in stream:
                break
            await stream.close()

    asyncio.run(ask())
    until = 100
    while bundled.metric("num_requests_running") and until:
        until -= 1
        asyncio.run(asyncio.sleep(0.05))
    assert bundled.metric("num_requests_running") == 0


def test_several_answers_with_log_probabilities(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=ASKED, n=3, seed=1, logprobs=True, top_logprobs=2, max_tokens=4
    )
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content
        for token in choice.logprobs.content:
            assert token.logprob <= 0
            assert len(token.top_logprobs) == 2


def test_text_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=3, logprobs=1)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert answer.choices[0].logprobs is not None


def test_an_answer_is_parsed_into_a_model(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=about(example()), response_format=Shape, temperature=0
    )
    assert isinstance(answer.choices[0].message.parsed, Shape)


def test_a_json_schema_is_kept_to(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"shape": {"enum": ["circle", "square"]}},
              "required": ["shape"], "additionalProperties": False}  # fmt: skip
    answer = client.chat.completions.create(
        model=MODEL,
        messages=ASKED,
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "shape", "schema": schema, "strict": True},
        },
    )
    assert json.loads(answer.choices[0].message.content or "")["shape"] in ("circle", "square")


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_tool_is_called_where_it_must_be(tools: openai.OpenAI, choice: Any) -> None:
    answer = tools.chat.completions.create(
        model=MODEL,
        messages=ASKED,
        tools=[WEATHER],
        tool_choice=choice,
        parallel_tool_calls=False,
        temperature=0,
    )
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert len(calls) == 1
    call = calls[0]
    assert call.type == "function"
    assert call.function.name == "weather"
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    said: Any = answer.choices[0].message.model_dump(exclude_none=True)
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    follow = tools.chat.completions.create(
        model=MODEL, messages=[*ASKED, said, result], tools=[WEATHER], tool_choice="none"
    )
    assert follow.choices[0].message.tool_calls is None


def test_responses_whole_and_as_events(client: openai.OpenAI) -> None:
    picture = example()
    asked: Any = [
        {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": shown(picture), "detail": "auto"},
                {"type": "input_text", "text": picture.question},
            ],
        }
    ]
    whole = client.responses.create(model=MODEL, input=asked, temperature=0, store=False)
    assert whole.output_text == picture.actual
    with client.responses.stream(model=MODEL, input=asked, temperature=0, store=False) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == picture.actual


def test_a_response_is_parsed_into_a_model(client: openai.OpenAI) -> None:
    answer = client.responses.parse(model=MODEL, input="hello", text_format=Shape, store=False)
    assert isinstance(answer.output_parsed, Shape)


def test_a_response_calls_a_tool(tools: openai.OpenAI) -> None:
    tool: Any = {"type": "function", "strict": True, **WEATHER["function"]}
    answer = tools.responses.create(
        model=MODEL,
        input="hello",
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        store=False,
    )
    (call,) = answer.output
    assert call.type == "function_call"
    assert json.loads(call.arguments)["city"] in ("Rome", "Oslo")


def test_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    model = client.models.retrieve(MODEL)
    assert (model.model_extra or {})["modalities"] == ["text", "image", "video"]


@pytest.mark.parametrize(
    ("fields", "kind", "param"),
    [
        ({"model": "another"}, openai.NotFoundError, "model"),
        ({"temperature": -1}, openai.BadRequestError, "temperature"),
        ({"store": True}, openai.BadRequestError, "store"),
        ({"tools": [WEATHER]}, openai.BadRequestError, "tools"),
        ({"max_tokens": 0}, openai.BadRequestError, "max_tokens"),
        ({"messages": []}, openai.BadRequestError, "messages"),
    ],
)
def test_refusals_are_the_clients_exceptions(
    client: openai.OpenAI, fields: dict[str, Any], kind: type[openai.APIStatusError], param: str
) -> None:
    with pytest.raises(kind) as caught:
        client.chat.completions.create(**({"model": MODEL, "messages": ASKED} | fields))
    assert caught.value.param == param
    assert caught.value.request_id


def test_nobody_listening_is_a_connection_error(bundled: Served) -> None:
    nobody = str(httpx2.URL(bundled.url).copy_with(port=1))
    client = openai.OpenAI(base_url=nobody, api_key="none", max_retries=0)
    with pytest.raises(openai.APIConnectionError):
        client.models.list()
