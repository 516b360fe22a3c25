"""Requests as tests send them, and their streams as tests read them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx2

from tests.pictures import picture

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


def data_url(width: int = 48, height: int = 32, seed: int = 1) -> str:
    """A picture as a data URL."""
    buffer = BytesIO()
    picture(width, height, seed=seed).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def user(*parts: str) -> list[dict[str, Any]]:
    """One user turn; what begins like a data URL is a picture."""
    content = [
        {"type": "image_url", "image_url": {"url": part}}
        if part.startswith("data:")
        else {"type": "text", "text": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def body(*parts: str, tokens: int | None = 6, **fields: Any) -> dict[str, Any]:
    """A greedy request that goes on to its limit."""
    asked = {"messages": user(*parts or ("What is it?",)), "temperature": 0, "ignore_eos": True}
    if tokens is not None:
        asked["max_tokens"] = tokens
    return asked | fields


def text_of(answer: dict[str, Any], index: int = 0) -> str:
    """The text of one choice of a whole answer."""
    choice = next(c for c in answer["choices"] if c["index"] == index)
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


def events(response: httpx2.Response) -> Iterator[Any]:
    """The events of a stream, parsed strictly; ``"[DONE]"`` as it stands."""
    for frame in response.iter_bytes():
        frame.decode("utf-8")  # no frame ends inside a character
        for line in frame.decode().split("\n\n"):
            if line:
                assert line.startswith("data: ")
                data = line.removeprefix("data: ")
                yield data if data == "[DONE]" else json.loads(data, parse_constant=_no_constant)


def streamed(http: httpx2.Client, path: str, asked: dict[str, Any]) -> list[Any]:
    """All events of a stream."""
    with http.stream("POST", path, json=asked | {"stream": True}) as response:
        assert response.status_code == 200, response.read()
        return list(events(response))


def joined(chunks: list[Any], index: int = 0) -> str:
    """The text of one choice of a stream."""
    found = ""
    for chunk in chunks:
        for choice in chunk["choices"] if isinstance(chunk, dict) else ():
            if choice["index"] == index:
                found += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return found


def error_of(response: httpx2.Response) -> dict[str, Any]:
    """The error object of an answer, whose form is OpenAI's."""
    value = response.json()
    assert list(value) == ["error"]
    assert set(value["error"]) == {"message", "type", "param", "code"}
    return dict(value["error"])


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
