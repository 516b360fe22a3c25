"""The output of one response: its items, and the events that tell of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from firstlight.engine.tools.formats import ToolFormat
from firstlight.engine.tools.pieces import Arguments, CallBegin, Content, Piece, Reasoning
from firstlight.server.answers import new_id

Event = dict[str, Any]
_TEXT = "response.output_text"
_THOUGHT = "response.reasoning_text"
_CALL = "response.function_call_arguments"


class ResponseItems:
    """Gathers items from pieces of an answer.

    Attributes:
        items: all that were begun, in order, in OpenAI's form.
    """

    def __init__(self, tools: ToolFormat | None) -> None:
        self.items: list[dict[str, Any]] = []
        self._tools = tools

    def take(self, piece: Piece) -> Iterator[Event]:
        """The events of one more piece."""
        match piece:
            case Content(text):
                yield from self._more("message", text)
            case Reasoning(text):
                yield from self._more("reasoning", text)
            case CallBegin(_, name):
                yield from self.close()
                assert self._tools is not None, "only a tool's reader finds calls"
                yield self._open(
                    {
                        "type": "function_call",
                        "id": new_id("fc"),
                        "call_id": self._tools.new_id(),
                        "name": name,
                        "arguments": "",
                        "status": "in_progress",
                    }
                )
            case Arguments(_, text):
                self.items[-1]["arguments"] += text
                yield self._event(f"{_CALL}.delta", delta=text)

    def finish(self, *, complete: bool) -> Iterator[Event]:
        """The events of the end; an answer has at least one item."""
        if not self.items:
            yield from self._begin("message")
        yield from self.close(complete=complete)

    def close(self, *, complete: bool = True) -> Iterator[Event]:
        """End the item that is being written."""
        if not self.items or self.items[-1]["status"] != "in_progress":
            return
        item = self.items[-1]
        item["status"] = "completed" if complete else "incomplete"
        if item["type"] == "function_call":
            yield self._event(f"{_CALL}.done", arguments=item["arguments"], name=item["name"])
        else:
            part = item["content"][0]
            kind = _TEXT if item["type"] == "message" else _THOUGHT
            more: dict[str, Any] = {"logprobs": []} if kind == _TEXT else {}
            yield self._event(f"{kind}.done", content_index=0, text=part["text"], **more)
            yield self._event("response.content_part.done", content_index=0, part=dict(part))
        yield {**self._place("response.output_item.done"), "item": _copy(item)}

    def _more(self, kind: str, text: str) -> Iterator[Event]:
        last = self.items[-1] if self.items else None
        if last is None or last["type"] != kind or last["status"] != "in_progress":
            yield from self.close()
            yield from self._begin(kind)
        self.items[-1]["content"][0]["text"] += text
        name = _TEXT if kind == "message" else _THOUGHT
        more: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield self._event(f"{name}.delta", content_index=0, delta=text, **more)

    def _begin(self, kind: str) -> Iterator[Event]:
        part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        item: dict[str, Any] = {"type": kind, "id": new_id("rs"), "summary": []}
        if kind == "message":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            item = {"type": kind, "id": new_id("msg"), "role": "assistant"}
        yield self._open(item | {"status": "in_progress", "content": []})
        self.items[-1]["content"].append(part)
        yield self._event("response.content_part.added", content_index=0, part=dict(part))

    def _open(self, item: dict[str, Any]) -> Event:
        self.items.append(item)
        return {**self._place("response.output_item.added"), "item": _copy(item)}

    def _place(self, kind: str) -> Event:
        return {"type": kind, "output_index": len(self.items) - 1}

    def _event(self, kind: str, **fields: Any) -> Event:
        return {**self._place(kind), "item_id": self.items[-1]["id"], **fields}


def _copy(item: dict[str, Any]) -> dict[str, Any]:
    """An item as it is now."""
    parts = item.get("content")
    return dict(item) if parts is None else {**item, "content": [dict(part) for part in parts]}
