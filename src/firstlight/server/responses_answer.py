"""Answers of ``/v1/responses``, whole and as events."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from firstlight.core.output import Completion, FinishReason
from firstlight.engine.tools.forms import ChatForm
from firstlight.server.answers import new_id
from firstlight.server.failures import Failure
from firstlight.server.response_items import Event, ResponseItems
from firstlight.server.responses_input import AnsweredInput
from firstlight.server.schemas.responses import ResponsesRequest
from firstlight.server.sse import Chunk, EventStream, event
from firstlight.server.timings import timings_of
from firstlight.server.token_text import TokenText


@dataclass(frozen=True, slots=True)
class ResponsesAnswer:
    """One answer.

    Attributes:
        form: tells content from thoughts and calls.
        model: the name that stands in it.
        timed: whether it has ``timings``.
    """

    request: ResponsesRequest
    answered: AnsweredInput
    form: ChatForm
    tokens: TokenText
    model: str
    timed: bool
    id: str = field(default_factory=lambda: new_id("resp"))
    created: int = field(default_factory=lambda: int(time.time()))

    def whole(self) -> dict[str, Any]:
        """All at once, when it is complete."""
        (completion,) = self.answered.whole
        items = ResponseItems(self.form.tools)
        reader = self.form.reader()
        for piece in [*reader.push(completion.text), *reader.finish()]:
            for _ in items.take(piece):
                pass
        for _ in items.finish(complete=completion.finish_reason is FinishReason.STOP):
            pass
        return self._response(items, completion)

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        """The events in order, numbered."""
        number = 0
        async with aclosing(self._events()) as events:
            async for found in events:
                yield {**found, "sequence_number": number}
                number += 1

    async def _events(self) -> AsyncGenerator[Event, None]:
        items = ResponseItems(self.form.tools)
        reader = self.form.reader()
        begun = False
        async with aclosing(self.answered.deltas()) as deltas:
            async for delta in deltas:
                if not begun:
                    begun = True
                    for found in self._begin(items):
                        yield found
                pieces = reader.push(delta.text) if delta.text else []
                done = delta.completion
                if done is not None:
                    pieces = [*pieces, *reader.finish()]
                for piece in pieces:
                    for found in items.take(piece):
                        yield found
                if done is not None:
                    for found in self._end(items, done):
                        yield found

    def _begin(self, items: ResponseItems) -> Iterator[Event]:
        for kind in ("response.created", "response.in_progress"):
            yield {"type": kind, "response": self._response(items, None)}

    def _end(self, items: ResponseItems, completion: Completion) -> Iterator[Event]:
        complete = completion.finish_reason is FinishReason.STOP
        yield from items.finish(complete=complete)
        kind = "response.completed" if complete else "response.incomplete"
        yield {"type": kind, "response": self._response(items, completion)}

    def _response(self, items: ResponseItems, completion: Completion | None) -> dict[str, Any]:
        asked = self.request
        status, details, usage = "in_progress", None, None
        if completion is not None:
            complete = completion.finish_reason is FinishReason.STOP
            status = "completed" if complete else "incomplete"
            details = None if complete else {"reason": "max_output_tokens"}
            usage = _usage(completion, self.form.thought(completion, self.tokens.join))
        answer = {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "completed_at": None if completion is None else int(time.time()),
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": details,
            "instructions": asked.instructions,
            "max_output_tokens": asked.max_output_tokens,
            "metadata": asked.metadata or {},
            "model": self.model,
            "output": items.items if completion is not None else [],
            "parallel_tool_calls": asked.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            "temperature": 1.0 if asked.temperature is None else asked.temperature,
            "text": {"format": _format(asked)},
            "tool_choice": _choice(asked),
            "tools": [_tool(tool.model_dump()) for tool in asked.tools or ()],
            "top_p": 1.0 if asked.top_p is None else asked.top_p,
            "truncation": "disabled",
            "usage": usage,
        }
        if self.timed and completion is not None:
            answer["timings"] = timings_of(self.answered.stream.waits, completion)
        return answer


class ResponseEvents(EventStream):
    """Events that carry their type twice, as OpenAI's do; without ``[DONE]`` at the end."""

    end = b""

    def encoded(self, chunk: Chunk) -> bytes:
        """A chunk with the line of its type."""
        return f"event: {chunk['type']}\n".encode() + event(chunk)

    def failed(self, failure: Failure) -> Chunk:
        """OpenAI's event of an error, with the error object that clients look for beside it."""
        told = {"code": failure.code, "message": failure.message, "param": failure.param}
        return {"type": "error", **told, **failure.as_dict()}


def _usage(completion: Completion, thought: int) -> dict[str, Any]:
    used = completion.usage
    return {
        "input_tokens": used.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": used.cached_tokens,
            "cache_write_tokens": 0,
            "image_tokens": used.image_tokens,
            "text_tokens": used.prompt_tokens - used.image_tokens,
        },
        "output_tokens": used.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": thought},
        "total_tokens": used.prompt_tokens + used.completion_tokens,
    }


def _format(asked: ResponsesRequest) -> dict[str, Any]:
    form = asked.text.format if asked.text is not None else None
    if form is None:
        return {"type": "text"}
    return form.model_dump(by_alias=True, exclude_none=True)


def _choice(asked: ResponsesRequest) -> Any:
    choice = asked.tool_choice or "auto"
    return choice if isinstance(choice, str) else choice.model_dump()


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    return tool | {"strict": bool(tool["strict"])}
