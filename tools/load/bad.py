"""Requests that are wrong, and what each is to be told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from tools.load import pictures
from tools.load.asked import CHAT, RESPONSES, TEXT

_PICTURE = "messages[0].content[0]"


@dataclass(frozen=True, slots=True)
class Bad:
    """A wrong request.

    Attributes:
        body: as it is sent.
        status, param: of the error; ``param`` is how the name of the field at fault begins, None
            where none is.
        announced: the length that the header says; None for the body's own.
    """

    kind: str
    path: str
    body: bytes
    status: int
    param: str | None = None
    content_type: str = "application/json"
    announced: int | None = None

    def wrong(self, status: int, error: Mapping[str, Any]) -> str | None:
        """What is amiss with the error that it got; None if nothing is."""
        param = error.get("param")
        if status != self.status:
            return f"status {status} instead of {self.status}: {error}"
        if (self.param is None) != (param is None) or not str(param).startswith(str(self.param)):
            return f"param {param!r} instead of {self.param!r}: {error}"
        return None


def all_bad(seed: int, max_context: int) -> list[Bad]:
    """One of each kind.

    Args:
        max_context: tokens that the server takes; a longer prompt is among them.
    """
    return [*_bodies(), *_fields(), *_pictures(Random(seed)), *_lengths(max_context)]


def _bodies() -> list[Bad]:
    good = json.dumps(_chat("a")).encode()
    return [
        Bad("half a JSON", CHAT, good[:-5], 400),
        Bad("no JSON", TEXT, b"prompt=a", 400),
        Bad("no UTF-8", CHAT, good.replace(b'"a"', b'"\xff"'), 400),
        Bad("NaN", CHAT, good.replace(b": 0", b": NaN"), 400),
        Bad("another content type", CHAT, good, 415, content_type="text/plain"),
        Bad("an empty body", RESPONSES, b"", 400),
        Bad("a list", CHAT, b"[1]", 400),
        Bad("no such path", "/v1/chats", good, 404),
        Bad("another model", CHAT, json.dumps(_chat("a", model="other")).encode(), 404, "model"),
        Bad("too large", CHAT, b"{", 413, announced=1 << 40),
    ]


def _fields() -> list[Bad]:
    wrong: list[tuple[str, str, dict[str, Any]]] = [
        (CHAT, "max_tokens", {"max_tokens": 0}),
        (CHAT, "max_token", {"max_token": 5}),
        (CHAT, "temperature", {"temperature": -1}),
        (CHAT, "top_p", {"top_p": "0.5"}),
        (CHAT, "n", {"n": 1000}),
        (CHAT, "top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        (CHAT, "seed", {"seed": 2**70}),
        (CHAT, "stop_token_ids[0]", {"stop_token_ids": [2**30]}),
        (CHAT, "messages", {"messages": []}),
        (CHAT, "messages[0]", {"messages": [{"role": "somebody", "content": "a"}]}),
        (CHAT, "tools[0]", {"tools": [{}]}),
        (CHAT, "structured_outputs", {"structured_outputs": {"regex": "("}}),
        (CHAT, "response_format", {"response_format": {"type": "json_schema"}}),
        (TEXT, "prompt", {"prompt": 5}),
        (TEXT, "logprobs", {"prompt": "a", "logprobs": -1}),
        (TEXT, "best_of", {"prompt": "a", "best_of": 3}),
        (RESPONSES, "input", {"input": []}),
        (RESPONSES, "previous_response_id", {"input": "a", "previous_response_id": "resp-1"}),
        (RESPONSES, "max_output_tokens", {"input": "a", "max_output_tokens": -5}),
    ]
    found = []
    for path, param, fields in wrong:
        body = _chat("a") | fields if path == CHAT else fields
        found.append(Bad(f"field {param}", path, json.dumps(body).encode(), 400, param))
    return found


def _pictures(draw: Random) -> list[Bad]:
    shown = pictures.broken(draw) | {
        "a file": "file:///etc/hostname",
        "this machine": "http://127.0.0.1:1/a.png",
        "a private address": "http://169.254.169.254/latest/meta-data",
    }
    found = []
    for kind, url in shown.items():
        part = {"type": "image_url", "image_url": {"url": url}}
        body = _chat("a") | {"messages": [{"role": "user", "content": [part]}]}
        found.append(Bad(f"picture: {kind}", CHAT, json.dumps(body).encode(), 400, _PICTURE))
    return found


def _lengths(max_context: int) -> list[Bad]:
    text = "word " * (2 * max_context)
    asked = [(CHAT, "messages", _chat(text)), (TEXT, "prompt", {"prompt": text})]
    asked.append((RESPONSES, "input", {"input": text}))
    return [
        Bad(f"too long: {param}", path, json.dumps(body).encode(), 400, param)
        for path, param, body in asked
    ]


def _chat(text: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "temperature": 0} | fields
