"""What people do with litellm, against the servers at ``FIRSTLIGHT_URL`` and ``FIRSTLIGHT_TOOLS``;
its pytest runs in an environment of its own."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from pathlib import Path
from typing import Any

import litellm
import pytest

ASKED = [{"role": "user", "content": "hello"}]
TOOL: Any = {
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


def to(variable: str = "FIRSTLIGHT_URL") -> dict[str, Any]:
    base = os.environ[variable] + "/v1"
    return {"model": "openai/firstlight-demo", "api_base": base, "api_key": "none"}


def test_completion() -> None:
    answer = litellm.completion(messages=ASKED, temperature=0, **to())
    assert answer.choices[0].message.content
    assert answer.usage.prompt_tokens > 0


def test_a_stream_says_the_same() -> None:
    whole = litellm.completion(messages=ASKED, temperature=0, **to())
    options = {"include_usage": True}
    chunks = list(
        litellm.completion(
            messages=ASKED, temperature=0, stream=True, stream_options=options, **to()
        )
    )
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == whole.choices[0].message.content
    built = litellm.stream_chunk_builder(chunks, messages=ASKED)
    assert built.usage.total_tokens == whole.usage.total_tokens


def test_asynchronous() -> None:
    answer = asyncio.run(litellm.acompletion(messages=ASKED, temperature=0, **to()))
    assert answer.choices[0].message.content


def test_a_picture() -> None:
    picture = Path(os.environ["FIRSTLIGHT_PICTURE"])
    data = base64.b64encode(picture.read_bytes()).decode()
    content = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        {"type": "text", "text": os.environ["FIRSTLIGHT_QUESTION"]},
    ]
    asked = [{"role": "user", "content": content}]
    answer = litellm.completion(messages=asked, temperature=0, **to())
    assert answer.choices[0].message.content == os.environ["FIRSTLIGHT_ANSWER"]


def test_a_tool() -> None:
    answer = litellm.completion(
        messages=ASKED,
        tools=[TOOL],
        tool_choice="required",
        parallel_tool_calls=False,
        **to("FIRSTLIGHT_TOOLS"),
    )
    (call,) = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")


def test_a_form() -> None:
    schema = TOOL["function"]["parameters"]
    form = {"type": "json_schema", "json_schema": {"name": "at", "schema": schema, "strict": True}}
    answer = litellm.completion(messages=ASKED, response_format=form, **to())
    assert json.loads(answer.choices[0].message.content)["city"] in ("Rome", "Oslo")


def test_text_completion() -> None:
    options = to() | {"model": "text-completion-openai/firstlight-demo"}
    answer = litellm.text_completion(prompt="a", max_tokens=4, **options)
    assert answer.usage.completion_tokens <= 4


def test_a_response() -> None:
    answer = litellm.responses(input="hello", store=False, **to())
    assert answer.status == "completed"


def test_refusals_are_litellms_exceptions() -> None:
    with pytest.raises(litellm.BadRequestError, match="temperature"):
        litellm.completion(messages=ASKED, temperature=-1, num_retries=0, **to())
    other = to() | {"model": "openai/another"}
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(messages=ASKED, num_retries=0, **other)
