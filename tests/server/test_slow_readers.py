"""Clients that ask and do not read hold up nobody else."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack

from firstlight.engine.build import Parts
from tests.server.asking import CHAT, body
from tests.server.running import running


def asking(port: int, tokens: int) -> socket.socket:
    """A client with small buffers that has sent a request for a long stream and reads nothing."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", port))
    text = json.dumps(body(tokens=tokens, stream=True, logprobs=True, top_logprobs=20)).encode()
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    sock.sendall(f"{head}Content-Length: {len(text)}\r\n\r\n".encode() + text)
    return sock


def test_who_does_not_read_takes_no_place_of_those_who_do(parts: Parts) -> None:
    """Their answers are computed, and then the engine has done with them."""
    with running(parts, send_buffer=4096, prepared_ahead=1) as server, ExitStack() as stack:
        port = int(server.url.rpartition(":")[2])
        engine = server.service.engine
        for _ in range(6):  # more than may be prepared or run
            stack.enter_context(asking(port, 100))
        until = time.monotonic() + 10
        while engine.loop.steps < 100 or engine.loop.in_flight:
            assert time.monotonic() < until
            time.sleep(0.005)
        assert engine.intake.requests >= 5
        with server.client() as http:
            assert http.post(CHAT, json=body()).status_code == 200


def test_who_does_not_read_for_long_is_put_out(parts: Parts) -> None:
    with running(parts, send_buffer=4096, body_seconds=0.2) as server, ExitStack() as stack:
        port = int(server.url.rpartition(":")[2])
        for _ in range(6):
            stack.enter_context(asking(port, 100))
        time.sleep(0.2)
        assert server.idle()
