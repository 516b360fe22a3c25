"""A server whose every answer a test decides, chunk by chunk and pause by pause."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Script = Sequence[str | float | None]
"""What is sent: texts, pauses in seconds between them, and None, which cuts the connection."""


def chunk(text: str | None = None, finish: str | None = None, **more: Any) -> str:
    """One event of a chat's stream."""
    delta = {} if text is None else {"content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return f"data: {json.dumps({'choices': [choice]} | more)}\n\n"


def usage(prompt: int, completion: int, cached: int = 0, image: int = 0) -> str:
    """The event with the token counts."""
    details = {"cached_tokens": cached, "image_tokens": image}
    counts = {"prompt_tokens": prompt, "completion_tokens": completion}
    value = {"choices": [], "usage": counts | {"prompt_tokens_details": details}}
    return f"data: {json.dumps(value)}\n\n"


DONE = "data: [DONE]\n\n"


def answer(*texts: str, tokens: int | None = None, pause: float = 0.0) -> list[str | float]:
    """A whole answer: its role, its texts with a pause before each, its end and its counts."""
    sent: list[str | float] = [chunk("")]
    for text in texts:
        sent += [pause, chunk(text)]
    n = len(texts) if tokens is None else tokens
    return [*sent, chunk(finish="stop"), usage(11, n, cached=4, image=2), DONE]


@dataclass
class FakeServer:
    """Counts words as tokens where it is asked plainly, and streams what it is told to.

    Attributes:
        script: what the next streams send; called with the number of the stream, from 0.
        asked: bodies of the streams, in order.
        status: of the streams; with another than 200 the script is a JSON body.
        headers: of all requests, by lower-case name.
    """

    script: Callable[[int], Script] = lambda n: answer("a", "b")
    status: Callable[[int], int] = lambda n: 200
    counts: bool = True
    models: tuple[str, ...] = ("fake",)
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, for one request."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.strip().split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        self.headers.append(headers)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        try:
            if first.startswith("GET /v1/models"):
                _whole(writer, 200, {"data": [{"id": name} for name in self.models]})
            elif first.startswith("GET"):
                _whole(writer, 404, {"error": {"message": "no such path", "code": "not_found"}})
            else:
                await self._chat(json.loads(body), writer)
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _chat(self, asked: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if not asked.get("stream"):
            n = len(asked["messages"][0]["content"].split()) + 7
            _whole(writer, 200, {"usage": {"prompt_tokens": n}} if self.counts else {})
            return
        number = len(self.asked)
        self.asked.append(asked)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            status = self.status(number)
            if status != 200:
                _whole(writer, status, json.loads(str(self.script(number)[0])))
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                         b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n")  # fmt: skip
            for part in self.script(number):
                if part is None:
                    writer.transport.abort()
                    return
                if isinstance(part, str):
                    data = part.encode()
                    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                    await writer.drain()
                else:
                    await asyncio.sleep(part)
            writer.write(b"0\r\n\r\n")
        finally:
            self.in_flight -= 1


def _whole(writer: asyncio.StreamWriter, status: int, value: object) -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


@asynccontextmanager
async def serving(server: FakeServer) -> AsyncIterator[FakeServer]:
    """Listen on a free port of this machine until the block ends."""
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
