"""Clients that begin a request and do not end it keep no connection and no place."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from firstlight.engine.build import Parts
from tests.server.asking import CHAT
from tests.server.running import Running, running

HEAD = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n".encode()
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.fixture(scope="module")
def hasty(parts: Parts) -> Iterator[Running]:
    """A server that waits for little."""
    with running(parts, keep_alive_seconds=1, body_seconds=0.3, request_seconds=0.6) as server:
        yield server


def connected(server: Running) -> socket.socket:
    """A connection on which nothing was said."""
    return socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2])), timeout=5)


def read_to_end(sock: socket.socket) -> bytes:
    """What comes until the server closes the connection; TimeoutError if it does not."""
    found = b""
    while piece := sock.recv(65536):
        found += piece
    return found


@pytest.mark.parametrize(
    "begun", [b"", b"GET /heal", HEALTH + b"GET /heal"], ids=["nothing", "head", "second head"]
)
def test_a_connection_whose_request_does_not_come_is_closed(begun: bytes, hasty: Running) -> None:
    with connected(hasty) as sock:
        sock.sendall(begun)
        assert read_to_end(sock).count(b"200 OK") == begun.count(HEALTH)


def test_a_head_that_begins_after_an_answer_and_stops_is_closed(hasty: Running) -> None:
    with connected(hasty) as sock:
        sock.sendall(HEALTH)
        time.sleep(0.1)
        sock.sendall(b"GET /heal")
        assert read_to_end(sock).count(b"200 OK") == 1


@pytest.mark.parametrize(
    "begun", [b"", HEAD + b"Content-Length: 1000\r\n\r\n"], ids=["head", "body"]
)
def test_a_request_that_comes_drop_by_drop_ends(begun: bytes, hasty: Running) -> None:
    """Each drop comes in time, and the whole would take for ever."""
    with connected(hasty) as sock:
        ended = threading.Event()

        def drip() -> None:
            while not ended.wait(0.05):
                try:
                    sock.sendall(b" " if begun else b"G")
                except OSError:
                    return

        sock.sendall(begun)
        dripping = threading.Thread(target=drip)
        began = time.monotonic()
        dripping.start()
        try:
            answer = read_to_end(sock)
        except ConnectionResetError:  # it was still being written to
            answer = b""
        finally:
            ended.set()
            dripping.join()
    assert time.monotonic() - began < 3
    assert not begun or b"body_timeout" in answer or answer == b""
    assert hasty.idle()


def test_connections_are_kept_while_they_are_used(hasty: Running) -> None:
    """An answer that takes longer than a head may is no reason to close."""
    with connected(hasty) as sock:
        for _ in range(3):
            sock.sendall(HEALTH)
            found = b""
            while b"faults" not in found:  # the head may come before the body
                piece = sock.recv(65536)
                assert piece
                found += piece
            assert b"200 OK" in found
            time.sleep(0.4)
