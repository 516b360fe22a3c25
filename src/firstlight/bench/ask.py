"""Sends one request, reads its stream, and notes when what came."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import httpx2

from firstlight.bench.answer import Answer
from firstlight.bench.workload import Prompt

PATH = "/v1/chat/completions"
_JSON = {"Content-Type": "application/json"}
_TEXTS = ("content", "reasoning_content", "reasoning", "tool_calls")
_SHOWN = 300


class _Failed(Exception):
    """The answer is lost."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.detail = detail


class _Reader:
    """Takes the events of one stream."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.pieces: list[float] = []
        self.facts: dict[str, Any] = {}

    def take(self, data: str) -> None:
        """One event's data."""
        now = self._clock()
        if data == "[DONE]":
            return
        chunk = json.loads(data)
        if error := chunk.get("error"):
            raise _Failed(f"in the stream: {_code(error)}", _message(error))
        for choice in chunk.get("choices") or ():
            delta = choice.get("delta") or {}
            if any(delta.get(name) for name in _TEXTS):
                self.pieces.append(now)
            if reason := choice.get("finish_reason"):
                self.facts["finish_reason"] = str(reason)
        if usage := chunk.get("usage"):
            self.facts |= _counts(usage)
        if timings := chunk.get("timings"):
            self.facts["timings"] = timings

    def check(self) -> None:
        """Raise _Failed unless all of the answer came."""
        if "finish_reason" not in self.facts:
            raise _Failed("cut off", f"the stream ended after {len(self.pieces)} pieces of text")
        if "completion_tokens" not in self.facts:
            self.facts |= {"completion_tokens": len(self.pieces), "counted": False}


async def ask(
    client: httpx2.AsyncClient,
    prompt: Prompt,
    *,
    clock: Callable[[], float],
    due: float | None = None,
) -> Answer:
    """Ask, and read all of the answer; whatever goes wrong is in the result.

    Args:
        client: with the server's address, its key and the timeouts.
        clock: seconds, monotonic.
        due: when the request should have been sent; None is now.
    """
    reader = _Reader(clock)
    body = prompt.body()
    sent = clock()
    error: _Failed | None = None
    try:
        async with client.stream("POST", PATH, content=body, headers=_JSON) as response:
            if response.status_code != 200:
                raise _refused(response.status_code, await response.aread())
            async for event in httpx2.EventSource(response):
                reader.take(event.data)
        reader.check()
    except _Failed as failed:
        error = failed
    except httpx2.TimeoutException as failed:
        error = _Failed(f"timeout ({type(failed).__name__})", str(failed))
    except httpx2.HTTPError as failed:
        error = _Failed(f"connection ({type(failed).__name__})", str(failed))
    except (ValueError, AttributeError, TypeError) as failed:  # of JSON, and of what is no chunk
        error = _Failed("no valid chunk", str(failed))
    return Answer(
        due=sent if due is None else due,
        sent=sent,
        ended=clock(),
        max_tokens=prompt.max_tokens,
        images=prompt.images,
        pieces=tuple(reader.pieces),
        error=None if error is None else error.kind,
        detail="" if error is None else error.detail[:_SHOWN],
        **reader.facts,
    )


def _refused(status: int, body: bytes) -> _Failed:
    """What an answer with another status says, by OpenAI's form if it has it."""
    try:
        error = json.loads(body)["error"]
        return _Failed(f"HTTP {status} {_code(error)}", _message(error))
    except (ValueError, KeyError, TypeError):
        return _Failed(f"HTTP {status}", body.decode("utf-8", "replace"))


def _code(error: object) -> str:
    if isinstance(error, Mapping):
        return str(error.get("code") or error.get("type") or "error")
    return "error"


def _message(error: object) -> str:
    return str(error.get("message", error) if isinstance(error, Mapping) else error)


def _counts(usage: Mapping[str, Any]) -> dict[str, int]:
    details = usage.get("prompt_tokens_details") or {}
    return {
        "prompt_tokens": int(usage.get("prompt_tokens") or 0),
        "completion_tokens": int(usage.get("completion_tokens") or 0),
        "cached_tokens": int(details.get("cached_tokens") or 0),
        "image_tokens": int(details.get("image_tokens") or 0),
    }
