"""Answers as server-sent events: the status waits for the first token, errors are never silent."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from firstlight.server.disconnect import ClientLeft, while_connected
from firstlight.server.failures import Failure, failure_of, is_foreseen
from firstlight.server.logs import log_event, trace

Chunk = Mapping[str, Any]
DONE = b"data: [DONE]\n\n"
_LOG = logging.getLogger("firstlight.server")


class EventStream(Response):
    """Sends chunks as they come.

    An error before the first chunk is an answer with its own status. A later one is a last event
    with ``error``, without ``[DONE]`` behind it. If the client leaves, the chunks' generator is
    closed at once.

    Args:
        chunks: what to send.
        headers_then: headers that are known with the first chunk.
    """

    media_type = "text/event-stream"
    end = DONE

    def __init__(
        self, chunks: AsyncGenerator[Chunk, None], headers_then: Callable[[], dict[str, str]]
    ) -> None:
        super().__init__()
        self._chunks = chunks
        self._headers_then = headers_then

    def encoded(self, chunk: Chunk) -> bytes:
        """A chunk as an event."""
        return event(chunk)

    def failed(self, failure: Failure) -> Chunk:
        """The last chunk of an answer that is lost on its way."""
        return failure.as_dict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all of it."""
        try:
            await while_connected(receive, self._send_all(scope, receive, send))
        except ClientLeft:
            scope["state"]["facts"]["left"] = True

    async def _send_all(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = scope["state"]["request_id"]
        async with aclosing(self._chunks) as chunks:
            begun = False
            try:
                async for chunk in chunks:
                    if not begun:
                        begun = True
                        await self._start(send)
                    await _body(send, self.encoded(chunk))
            except ClientLeft:  # it takes nothing any more
                raise
            except Exception as error:
                failure = failure_of(error, request_id)
                scope["state"]["facts"]["error"] = failure.code or failure.type
                if not begun:
                    raise
                if not is_foreseen(error):
                    log_event(
                        _LOG, "internal error", logging.ERROR, request=request_id, at=trace(error)
                    )
                await _body(send, self.encoded(self.failed(failure)))
            else:
                await _body(send, self.end)
            await _body(send, b"", more=False)

    async def _start(self, send: Send) -> None:
        headers = {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
            "x-accel-buffering": "no",
            **self._headers_then(),
        }
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})


def event(chunk: Chunk) -> bytes:
    """One event, strict JSON in UTF-8."""
    text = json.dumps(chunk, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return b"data: " + text.encode("utf-8") + b"\n\n"


async def _body(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
