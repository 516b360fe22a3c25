"""The start of a server: its address, its first lines; and its end, as a process."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from firstlight.engine.build import Parts
from firstlight.errors import ConfigError
from firstlight.server.address import bind
from firstlight.server.keys import KeyRing
from firstlight.server.serve import open_service
from firstlight.server.settings import ServerSettings
from firstlight.server.start_lines import size, start_lines
from tests.conftest import TinyCheckpoint
from tests.server.asking import CHAT, body, events
from tests.server.running import KEYS, Running


def test_an_address_that_is_taken_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"host = '127.0.0.1' and port = {port}"):
            bind("127.0.0.1", port)


def test_nobody_is_let_in_before_the_server_listens() -> None:
    with bind("127.0.0.1", 0) as sock, pytest.raises(ConnectionRefusedError):
        socket.create_connection(sock.getsockname(), timeout=1)


def test_an_answer_does_not_wait_for_the_clients_acknowledgement(server: Running) -> None:
    """With Nagle's algorithm each takes 40 ms and more."""
    with server.client() as http:
        http.get("/version")
        seconds = [http.get("/version").elapsed.total_seconds() for _ in range(10)]
    assert min(seconds) < 0.03


def test_the_first_lines_say_what_is_served_with_what_and_no_key(parts: Parts) -> None:
    service = open_service(parts, ServerSettings(host="0.0.0.0", served_model_name=("my-model",)))
    text = "\n".join(start_lines(service, KeyRing(KEYS), verbose=True))
    assert "Qwen3VLForConditionalGeneration" in text
    assert "my-model" in text
    assert f"context {parts.memory.max_context}" in text
    assert "max_waiting=256" in text
    for phase in ("prefill", "decode"):
        line = next(line for line in text.splitlines() if line.startswith(phase))
        assert " graphs in " in line
    assert all(key not in text for key in KEYS)
    assert "WARNING" not in text


def test_a_server_that_others_reach_without_a_key_warns(parts: Parts) -> None:
    for host, warned in (("0.0.0.0", True), ("127.0.0.1", False)):
        service = open_service(parts, ServerSettings(host=host))
        text = "\n".join(start_lines(service, KeyRing([])))
        assert ("WARNING" in text) is warned


@pytest.mark.parametrize(
    ("n", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 30, "3.0 GiB")]
)
def test_bytes_for_people(n: int, text: str) -> None:
    assert size(n) == text


@contextmanager
def process(model: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``firstlight serve`` and its address."""
    command = [sys.executable, "-m", "firstlight", "serve", model, "--port", "0", *options]
    command += ["--buckets", "64", "--proof", "off", "--padding-cost", "free", "--no-progress"]
    environ = {**os.environ, "FIRSTLIGHT_API_KEY": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("listening"):
                yield child, line.split()[1]
                break
        else:
            assert child.stderr is not None
            raise AssertionError(child.stderr.read())
    finally:
        child.kill()
        child.communicate()


@pytest.mark.slow
def test_a_supervised_server_that_is_killed_is_back_and_no_answer_is_cut_in_silence(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    """Who connects meanwhile waits; SIGTERM to the supervisor ends both."""
    with process(str(tiny_checkpoint("qwen3_vl")), "--supervise") as (parent, url):
        with httpx2.Client(base_url=url, timeout=60) as http:
            pid = _child_of(parent.pid)
            with http.stream("POST", CHAT, json=body(tokens=900, stream=True, n=4)) as response:
                chunks = events(response)
                next(chunks)
                os.kill(pid, signal.SIGKILL)
                with pytest.raises(httpx2.RemoteProtocolError):
                    list(chunks)
            assert http.post(CHAT, json=body()).status_code == 200
            assert _child_of(parent.pid) != pid
        parent.send_signal(signal.SIGTERM)
        assert parent.wait(10) == 0
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{url}/health")


def _child_of(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


@pytest.mark.slow
def test_sigterm_lets_a_stream_finish_and_then_ends_the_process(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    with process(str(tiny_checkpoint("qwen3_vl"))) as (child, url):
        with (
            httpx2.Client(base_url=url, timeout=30) as http,
            http.stream("POST", CHAT, json=body(tokens=400, stream=True)) as response,
        ):
            chunks = events(response)
            next(chunks)
            child.send_signal(signal.SIGTERM)
            *_, last = chunks
            assert last == "[DONE]"
        assert child.wait(10) == 0
        with pytest.raises(httpx2.ConnectError):
            httpx2.get(f"{url}/health")


@pytest.mark.slow
def test_what_does_not_finish_in_time_is_cut_with_an_error_and_the_process_ends(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    with process(str(tiny_checkpoint("qwen3_vl")), "--drain-seconds", "0.1") as (child, url):
        with (
            httpx2.Client(base_url=url, timeout=30) as http,
            http.stream("POST", CHAT, json=body(tokens=1000, stream=True, n=4)) as response,
        ):
            chunks = events(response)
            next(chunks)
            began = time.monotonic()
            child.send_signal(signal.SIGTERM)
            *_, last = chunks
        assert last["error"]["code"] == "shutting_down"
        child.wait(10)
        assert time.monotonic() - began < 5


@pytest.mark.slow
def test_a_connection_is_kept_for_longer_than_uvicorns_and_most_clients_five_seconds(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    """Else it may end just when the next request is sent, which then fails for nothing."""
    with (
        process(str(tiny_checkpoint("qwen3_vl"))) as (_, url),
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as sock,
    ):
        sock.settimeout(10)
        for pause in (6.0, 0.0):
            sock.sendall(b"GET /version HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            time.sleep(pause)
