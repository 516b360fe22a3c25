"""What a library for HTTP does not do: half a request, a false length, a tiny receive buffer."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from urllib.parse import urlsplit

import httpx2

_SMALL = 2048


def small_reader(url: str) -> httpx2.AsyncClient:
    """A client whose receive buffer is tiny, so that who reads slowly holds the server up."""
    small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)]
    transport = httpx2.AsyncHTTPTransport(verify=False, socket_options=small)
    return httpx2.AsyncClient(base_url=url, timeout=None, transport=transport)


async def send_half(url: str, path: str, body: bytes) -> None:
    """Announce a body, send half of it, and leave."""
    _, writer = await _connect(url)
    try:
        writer.write(_head(path, len(body)) + body[: len(body) // 2])
        await writer.drain()
        await asyncio.sleep(0.01)
    finally:
        await _close(writer)


async def announce(url: str, path: str, length: int) -> tuple[int, str]:
    """Announce a body of a length, send none of it, and read the answer: its status, its body."""
    reader, writer = await _connect(url)
    try:
        writer.write(_head(path, length))
        await writer.drain()
        answer = (await reader.read()).decode()
    finally:
        await _close(writer)
    if not answer:
        raise ConnectionResetError("no answer")
    head, _, text = answer.partition("\r\n\r\n")
    return int(head.split()[1]), text


def _head(path: str, length: int) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


async def _connect(url: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    at = urlsplit(url)
    return await asyncio.open_connection(at.hostname, at.port)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
