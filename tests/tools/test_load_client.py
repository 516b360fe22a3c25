"""A client of the load test in front of servers that behave badly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from tools.load.answer import Answer, Choice
from tools.load.asked import CHAT, Asked
from tools.load.bad import Bad
from tools.load.client import Client, Work
from tools.load.compare import Spread
from tools.load.tally import Tally

ASKED = Asked("text", CHAT, {"messages": [], "n": 1})
ALONE = Answer((Choice("ab", "stop"),), (5, 2))
HEAD = b"HTTP/1.1 200 OK\r\nConnection: close\r\n"
Reply = Callable[[bytes], bytes | None]
"""The bytes of an answer to a request's bytes, or None: no answer at all."""


def whole(text: str) -> bytes:
    choice = {
        "index": 0,
        "message": {"content": text},
        "logprobs": None,
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    return HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def streamed(*events: str, end: bool = True) -> bytes:
    body = b"".join(
        b"%x\r\n%s\r\n" % (len(e), e) for e in (f"data: {e}\n\n".encode() for e in events)
    )
    return HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body + (b"0\r\n\r\n" if end else b"")


def piece(text: str, finish: str | None = None) -> str:
    delta = {"content": text}
    choice: dict[str, Any] = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return json.dumps({"choices": [choice]})


def asked_of(reply: Reply, doing: str = "ask", seeds: range = range(6)) -> Tally:
    """What became of requests of several clients to a server that replies so."""

    ended = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):  # some clients leave at once
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
            answer = reply(await reader.readexactly(length))
            if answer is None:
                await reader.read()  # until the client gives up
            else:
                writer.write(answer)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        ended.release()

    async def run() -> Tally:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        bad = Bad("field n", CHAT, b"{}", 400, "n")
        work = Work(f"http://127.0.0.1:{port}", [], [bad], Tally(), Spread(), 0.3)
        for seed in seeds:
            client = Client(work, seed)
            async with client.connected() as http:
                if doing == "ask":
                    await client.ask(http, ASKED, ALONE)
                else:
                    await client.ask_badly(http, bad)
                await ended.acquire()
        server.close()
        await server.wait_closed()
        return work.tally

    return asyncio.run(run())


def either(text: str, *events: str, end: bool = True) -> Reply:
    """A whole answer or a stream, as the request wants it."""
    return lambda body: streamed(*events, end=end) if b'"stream"' in body else whole(text)


def kinds(tally: Tally) -> set[str]:
    return {trouble.kind for trouble in tally.troubles}


def test_right_answers_are_fine_in_both_forms() -> None:
    tally = asked_of(either("ab", piece("a"), piece("b", "stop"), "[DONE]"))
    assert not tally.troubles
    assert tally.fine["whole"]
    assert tally.fine["streamed"] + tally.fine["read slowly"]


def test_a_wrong_answer_is_wrong_in_both_forms() -> None:
    tally = asked_of(either("ac", piece("a"), piece("c", "stop"), "[DONE]"))
    assert len(tally.troubles) == 6
    assert kinds(tally) == {"wrong"}


def test_a_stream_without_its_end_is_cut_if_http_says_that_it_is_whole() -> None:
    assert "cut" in kinds(asked_of(either("ab", piece("a"))))


def test_a_stream_without_its_end_is_broken_if_the_connection_breaks() -> None:
    assert kinds(asked_of(either("ab", piece("a"), end=False))) == {"broken"}


def test_a_server_that_says_nothing_hangs() -> None:
    assert kinds(asked_of(lambda body: None, seeds=range(1))) == {"hung"}


@pytest.mark.parametrize("param", ['"n"', "null"])
def test_a_refusal_names_the_field_or_is_none(param: str) -> None:
    body = b'{"error": {"message": "m", "param": %s}}' % param.encode()
    answer = b"HTTP/1.1 400 Bad\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    tally = asked_of(lambda _: answer + body, "ask badly", range(1))
    assert kinds(tally) == (set() if param == '"n"' else {"not refused"})


def test_an_accepted_nonsense_is_noticed() -> None:
    assert kinds(asked_of(lambda body: whole("ab"), "ask badly", range(1))) == {"not refused"}
