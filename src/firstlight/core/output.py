"""What a caller gets back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from firstlight.core.timing import Timings


class FinishReason(StrEnum):
    """Why generation ended (OpenAI's words; ``abort``: the caller took the request out)."""

    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request.

    ``image_tokens`` and ``cached_tokens`` are part of ``prompt_tokens``; the latter were found in
    the prefix cache and not computed again.
    """

    prompt_tokens: int
    completion_tokens: int
    image_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of a chosen token and of its most likely rivals ``(token id, logprob)``."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that an answer asks for.

    Attributes:
        arguments: JSON text as the model wrote it; cut short where the answer was.
    """

    id: str
    name: str
    arguments: str

    def values(self) -> dict[str, Any]:
        """The arguments.

        Raises:
            ValueError: they are no JSON object, which only a form of the answer rules out.
        """
        value = json.loads(self.arguments)
        if not isinstance(value, dict):
            raise ValueError(f"the arguments of {self.name} are {self.arguments[:80]}, no object")
        return value

    def as_dict(self) -> dict[str, Any]:
        """As an assistant's message holds it, in OpenAI's form."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one request.

    Attributes:
        text: as it was generated, thoughts and calls included.
        content: of a chat's answer, what is left for the user; None if it was not read.
        reasoning: what the model thought before it; None if it did not, or was not read.
        tool_calls: what it asks to be called.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    logprobs: tuple[TokenLogprob, ...] | None = None
    error: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
