"""The input of ``/v1/responses`` as a chat, and the chat's places as those of the input."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from pydantic import ValidationError

from firstlight.engine.aio import Delta
from firstlight.errors import RequestError
from firstlight.server.answers import Answered
from firstlight.server.failures import invalid
from firstlight.server.schemas.chat import ChatRequest
from firstlight.server.schemas.responses import (
    Content,
    Format,
    FunctionCall,
    FunctionCallOutput,
    FunctionChoice,
    InputImage,
    InputMessage,
    Item,
    ReasoningItem,
    ResponsesRequest,
    SchemaFormat,
)

_MESSAGE = re.compile(r"\bmessages\[(\d+)\]")
_FUNCTION = re.compile(r"\b(tools\[\d+\])\.function\b")
_SHARED = (
    "model", "temperature", "top_p", "top_k", "seed", "ignore_eos", "parallel_tool_calls",
    "stream", "timings",
)  # fmt: skip


class ChatOfInput:
    """A chat that says what a request of responses does.

    Attributes:
        request: the chat.

    Raises:
        ApiError: its fields contradict each other.
    """

    def __init__(self, body: ResponsesRequest) -> None:
        self._places: list[str] = []
        messages: list[dict[str, Any]] = []
        if body.instructions is not None:
            self._add(messages, {"role": "system", "content": body.instructions}, "instructions")
        if isinstance(body.input, str):
            self._add(messages, {"role": "user", "content": body.input}, "input")
        else:
            for i, item in enumerate(body.input):
                self._add_item(messages, item, f"input[{i}]")
        fields = {name: getattr(body, name) for name in _SHARED}
        fields |= {
            "messages": messages,
            "max_tokens": body.max_output_tokens,
            "response_format": _format(body.text.format if body.text is not None else None),
            "tools": _tools(body),
            "tool_choice": _choice(body),
        }
        try:
            self.request = ChatRequest.model_validate(fields)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = self._place(first["loc"])
            if place is None and first["type"] in ResponsesRequest.model_fields:
                place = first["type"]
            message = f"{place}: {first['msg']}" if place else first["msg"]
            raise invalid(message, place) from error

    def renamed(self, message: str) -> str:
        """A message about the chat as one about the input."""

        def place(found: re.Match[str]) -> str:
            index = int(found[1])
            return self._places[index] if index < len(self._places) else "input"

        message = _FUNCTION.sub(r"\1", _MESSAGE.sub(place, message))
        return message.replace("response_format.json_schema.schema", "text.format.schema").replace(
            "response_format", "text.format"
        )

    def error(self, error: RequestError) -> RequestError:
        """An error about the chat as one of the same kind about the input."""
        where = "input" if error.where == "messages" else error.where
        return type(error)(self.renamed(str(error)), where=where)

    def _place(self, loc: tuple[int | str, ...]) -> str | None:
        """The item that a validation error of the chat is about."""
        if len(loc) > 1 and loc[0] == "messages" and isinstance(loc[1], int):
            return self._places[loc[1]]
        return None

    def _add(self, messages: list[dict[str, Any]], message: dict[str, Any], place: str) -> None:
        messages.append(message)
        self._places.append(place)

    def _add_item(self, messages: list[dict[str, Any]], item: Item, place: str) -> None:
        if isinstance(item, InputMessage):
            message = {"role": item.role, "content": _content(item.content)}
            self._add(messages, message, place)
        elif isinstance(item, FunctionCallOutput):
            output = _content(item.output)
            message = {"role": "tool", "tool_call_id": item.call_id, "content": output}
            self._add(messages, message, place)
        elif isinstance(item, FunctionCall):
            if not messages or messages[-1]["role"] != "assistant":
                self._add(messages, {"role": "assistant", "content": None}, place)
            function = {"name": item.name, "arguments": item.arguments}
            call = {"id": item.call_id, "type": "function", "function": function}
            messages[-1].setdefault("tool_calls", []).append(call)
        else:
            assert isinstance(item, ReasoningItem)


class AnsweredInput(Answered):
    """A request whose errors are about its input."""

    chat: ChatOfInput

    async def deltas(self) -> AsyncGenerator[Delta, None]:
        """As they come."""
        try:
            async with aclosing(super().deltas()) as deltas:
                async for delta in deltas:
                    yield delta
        except RequestError as error:
            raise self.chat.error(error) from error


def _content(content: Content) -> Any:
    if isinstance(content, str):
        return content
    return [
        {
            "type": "image_url",
            "image_url": {"url": part.image_url, "detail": part.detail},
            "content_hash": part.content_hash,
        }
        if isinstance(part, InputImage)
        else {"type": "text", "text": part.text}
        for part in content
    ]


def _format(form: Format | None) -> dict[str, Any] | None:
    if not isinstance(form, SchemaFormat):
        return None if form is None else {"type": form.type}
    schema = {"name": form.name or "answer", "schema": form.schema_, "strict": form.strict}
    return {"type": "json_schema", "json_schema": schema}


def _tools(body: ResponsesRequest) -> list[dict[str, Any]] | None:
    if not body.tools:
        return None
    return [
        {"type": "function", "function": tool.model_dump(exclude={"type"})} for tool in body.tools
    ]


def _choice(body: ResponsesRequest) -> Any:
    if isinstance(body.tool_choice, FunctionChoice):
        return {"type": "function", "function": {"name": body.tool_choice.name}}
    return body.tool_choice
