"""What a request is told when its work is taken away from under it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from firstlight.server.gate import RequestLog

SCOPE = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}


async def cancelled(begins: bool) -> tuple[list[Any], list[tuple[str, int]]]:
    """The messages of an answer whose task is cancelled, and what was counted."""
    sent: list[Any] = []
    counted: list[tuple[str, int]] = []
    working = asyncio.Event()

    async def work(scope: Any, receive: Any, send: Any) -> None:
        if begins:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        working.set()
        await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    log = RequestLog(work, lambda route, status: counted.append((route, status)))
    task = asyncio.ensure_future(log(dict(SCOPE), receive, send))
    await working.wait()
    task.cancel()
    await task
    return sent, counted


def test_who_waits_when_the_server_ends_at_once_is_told_so() -> None:
    """As after a second Ctrl-C: it is no fault of the server, and may be asked of another one."""
    sent, counted = asyncio.run(cancelled(begins=False))
    assert sent[0]["status"] == 503
    assert json.loads(sent[1]["body"])["error"]["code"] == "shutting_down"
    assert counted == [("none", 503)]


def test_an_answer_that_has_begun_is_not_ended_as_if_it_were_whole() -> None:
    sent, counted = asyncio.run(cancelled(begins=True))
    assert [message["type"] for message in sent] == ["http.response.start"]
    assert counted == [("none", 200)]
