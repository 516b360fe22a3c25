"""What an assistant says in one choice of a chat, in OpenAI's form."""

from __future__ import annotations

from typing import Any

from firstlight.core.output import FinishReason
from firstlight.engine.tools.formats import ToolFormat
from firstlight.engine.tools.pieces import Arguments, CallBegin, Content, Parser, Piece, Reasoning


class Voice:
    """Reads one choice, and gathers what it says.

    Args:
        reader: of its text.
        tools: names the calls.
    """

    def __init__(self, reader: Parser, tools: ToolFormat | None) -> None:
        self._reader = reader
        self._tools = tools
        self._content: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def push(self, text: str) -> list[dict[str, Any]]:
        """The ``delta`` of each chunk that this text makes certain."""
        return [self._delta(piece) for piece in self._reader.push(text)] if text else []

    def finish(self) -> list[dict[str, Any]]:
        """The deltas of what was held back; no more text will come."""
        return [self._delta(piece) for piece in self._reader.finish()]

    def message(self) -> dict[str, Any]:
        """All that was said."""
        content = "".join(self._content)
        said: dict[str, Any] = {
            "role": "assistant",
            "content": content or None if self._calls else content,
            "refusal": None,
        }
        if self._reasoning:
            said["reasoning_content"] = "".join(self._reasoning)
        if self._calls:
            said["tool_calls"] = self._calls
        return said

    def finish_reason(self, reason: FinishReason) -> str:
        """OpenAI's word for the end."""
        return "tool_calls" if self._calls and reason is FinishReason.STOP else reason.value

    def _delta(self, piece: Piece) -> dict[str, Any]:
        match piece:
            case Content(text):
                self._content.append(text)
                return {"content": text}
            case Reasoning(text):
                self._reasoning.append(text)
                return {"reasoning_content": text}
            case CallBegin(index, name):
                assert self._tools is not None, "only a tool's reader finds calls"
                call = {
                    "id": self._tools.new_id(),
                    "type": "function",
                    "function": {"name": name, "arguments": ""},
                }
                self._calls.append(call)
                return {
                    "tool_calls": [
                        {"index": index, **call, "function": {"name": name, "arguments": ""}}
                    ]
                }
            case Arguments(index, text):
                self._calls[index]["function"]["arguments"] += text
                return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
