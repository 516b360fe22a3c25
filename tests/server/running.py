"""A real server in a thread, on a free port, around a tiny engine."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from firstlight.config import EngineConfig
from firstlight.engine.build import Parts
from firstlight.server.address import bind
from firstlight.server.keys import KeyRing
from firstlight.server.serve import Server, open_parts, open_service, uvicorn_config
from firstlight.server.service import Service
from firstlight.server.settings import ServerSettings
from firstlight.server.tracing import Tracing

KEYS = ("key-of-one", "key-of-another")


def tiny_parts(path: Path, **settings: Any) -> Parts:
    """An engine in float32 that starts at once and checks its memory whenever it is idle."""
    defaults: dict[str, Any] = {
        "model": path,
        "dtype": "float32",
        "max_num_seqs": 4,
        "page_size": 4,
        "padding_cost": "free",
        "proof": "off",
        "debug": True,
        "prefill_buckets": (64, 256),
    }
    return open_parts(EngineConfig.from_options({**defaults, **settings}))


@dataclass(frozen=True, slots=True)
class Running:
    """A server that runs."""

    service: Service
    url: str
    server: Server

    def client(self, **options: Any) -> httpx2.Client:
        """An HTTP client of it; it loads no certificates, which takes longer than most tests."""
        return httpx2.Client(base_url=self.url, timeout=30, verify=False, **options)

    def idle(self, seconds: float = 5.0) -> bool:
        """Whether everything that was in the house has left, waited for."""
        until = time.monotonic() + seconds
        engine = self.service.engine
        while time.monotonic() < until:
            stats = engine.parts.scheduler.stats
            busy = engine.intake.requests, engine.intake.bytes, stats.waiting, stats.running
            if not any(busy) and not engine.loop.in_flight:
                return True
            time.sleep(0.005)
        return False


@contextmanager
def running(
    parts: Parts,
    keys: tuple[str, ...] = (),
    send_buffer: int | None = None,
    tracing: Tracing | None = None,
    **settings: Any,
) -> Iterator[Running]:
    """Serve ``parts`` until the block ends; afterwards nobody runs them, and they can be reused.

    Args:
        send_buffer: bytes of an answer that the system takes before the client reads any.
        tracing: what makes spans.
    """
    service = open_service(parts, ServerSettings(port=0, **settings), tracing)
    server = Server(uvicorn_config(service, KeyRing(keys)), service)
    sock = bind("127.0.0.1", 0)
    if send_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    thread = threading.Thread(target=server.run, args=([sock],), daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not server.started and thread.is_alive() and time.monotonic() < until:
        time.sleep(0.005)
    assert server.started
    try:
        yield Running(service, server.url, server)
    finally:
        server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()
