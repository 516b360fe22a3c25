"""A request that leaves while its pictures are fetched holds up nothing (case H31)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

import httpx2
import pytest

from firstlight.engine.build import Parts
from tests.conftest import TinyCheckpoint
from tests.media.files import encoded, noise
from tests.media.listener import Listener, listening, sends
from tests.server.asking import CHAT, body
from tests.server.running import Running, running, tiny_parts


@dataclass(frozen=True, slots=True)
class SlowPictures:
    """A web server that sends its pictures when it is let."""

    listener: Listener
    let: threading.Event


@pytest.fixture(scope="module")
def slow() -> Iterator[SlowPictures]:
    let = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        let.wait(20)
        sends(encoded(noise()))(handler)

    with listening(answer) as listener:
        yield SlowPictures(listener, let)
        let.set()


@pytest.fixture(scope="module")
def open_parts(tiny_checkpoint: TinyCheckpoint, slow: SlowPictures) -> Iterator[Parts]:
    """An engine that may fetch from this machine."""
    parts = tiny_parts(
        tiny_checkpoint("qwen3_vl"),
        allow_any_media_host=True,
        trusted_media_networks=("127.0.0.1",),
        media_ports=(slow.listener.port,),
        media_read_seconds=30.0,
        media_fetch_seconds=30.0,
    )
    yield parts
    assert parts.pipeline is not None
    parts.pipeline.close()


@pytest.fixture
def server(open_parts: Parts) -> Iterator[Running]:
    """One thread prepares requests, so that one that is stuck would stop all others."""
    with running(open_parts, admission_threads=1) as server:
        yield server


def asks_and_leaves(server: Running, slow: SlowPictures, *, stream: bool) -> None:
    """A request for a picture that does not come, left as soon as it is asked for."""

    async def leave() -> None:
        path = f"/{stream}.png"
        part = {"type": "image_url", "image_url": {"url": slow.listener.url(path)}}
        asked = body(stream=stream) | {"messages": [{"role": "user", "content": [part]}]}
        async with httpx2.AsyncClient(base_url=server.url, verify=False, timeout=30) as http:
            request = asyncio.ensure_future(http.post(CHAT, json=asked))
            while path not in dict(slow.listener.requests) and not request.done():
                await asyncio.sleep(0.005)
            assert not request.done(), request.result().text
            request.cancel()

    asyncio.run(leave())


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_left_frees_the_thread_that_waited_for_its_picture(
    stream: bool, server: Running, slow: SlowPictures
) -> None:
    asks_and_leaves(server, slow, stream=stream)
    began = time.perf_counter()
    with server.client() as http:
        assert http.post(CHAT, json=body("Hello", tokens=1)).status_code == 200
    assert not slow.let.is_set()  # so the picture is still on its way
    assert time.perf_counter() - began < 5
    assert server.idle()
