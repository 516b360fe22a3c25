"""More than can be served: bounded in number, bytes and time; and the end of a server (H42)."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from firstlight.core.plan import BatchPlan
from firstlight.engine.build import Parts
from firstlight.engine.step import Step, StepResult
from tests.server.asking import (
    CHAT,
    TEXT,
    body,
    data_url,
    error_of,
    events,
    joined,
    streamed,
    text_of,
)
from tests.server.running import Running, running


class Gate:
    """Holds every step until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open = threading.Event()
        plain = Step.run

        def run(step: Step, plan: BatchPlan[Any]) -> StepResult:
            self._open.wait(20)
            return plain(step, plan)

        monkeypatch.setattr(Step, "run", run)

    def open(self) -> None:
        """Let steps run from now on."""
        self._open.set()


def wait_for(condition: Any, seconds: float = 5) -> None:
    """Until it is true, or fail."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


def test_beyond_the_queue_requests_are_refused_at_once_and_the_accepted_are_answered(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H42: 4 run, 3 wait, all others get 429."""
    asked = [body(data_url(seed=i), "What is it?") for i in range(16)]
    with running(parts, max_waiting=3) as server, server.client() as http:
        expected = [text_of(http.post(CHAT, json=a).json()) for a in asked]
        gate = Gate(monkeypatch)
        with ThreadPoolExecutor(16) as pool:
            answers = [pool.submit(http.post, CHAT, json=a) for a in asked]
            wait_for(lambda: sum(a.done() for a in answers) == 16 - 7)
            refused = [a.result() for a in answers if a.done()]
            assert server.service.engine.intake.requests == 7
            gate.open()
            done = [a.result() for a in answers]
        for answer in refused:
            assert answer.status_code == 429
            assert int(answer.headers["retry-after"]) >= 1
            assert error_of(answer)["code"] == "queue_full"
        served = [i for i, a in enumerate(done) if a.status_code == 200]
        assert len(served) == 7
        for i in served:
            assert text_of(done[i].json()) == expected[i]
        assert http.post(CHAT, json=asked[0]).status_code == 200
        assert server.idle()


def test_the_bytes_of_all_bodies_are_bounded_too(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H42"""
    asked = body("x" * 40_000)  # longer than the context: refused, but only once it is prepared
    size = len(json.dumps(asked))
    with running(parts, max_body_bytes=size + 100, max_waiting_bytes=2 * size + 200) as server:
        gate = Gate(monkeypatch)
        with server.client() as http, ThreadPoolExecutor(4) as pool:
            held = [pool.submit(http.post, CHAT, json=body(tokens=2)) for _ in range(1)]
            wait_for(lambda: server.service.engine.intake.bytes > 0)
            server.service.engine.intake.hold(2 * size - 200)
            answer = http.post(CHAT, json=asked)
            assert answer.status_code == 429
            assert "bytes" in error_of(answer)["message"]
            server.service.engine.intake.let_go(2 * size - 200)
            gate.open()
            assert [h.result().status_code for h in held] == [200]
        assert server.idle()


def test_only_some_requests_are_prepared_ahead_of_those_that_run(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H42: the others wait as they came, so that decoded pictures are bounded."""
    asked = [body(data_url(seed=100 + i), "What is it?") for i in range(12)]
    with running(parts, prepared_ahead=1) as server, server.client() as http:
        gate = Gate(monkeypatch)
        before = parts.pipeline.usage().misses if parts.pipeline else 0
        with ThreadPoolExecutor(12) as pool:
            answers = [pool.submit(http.post, CHAT, json=a) for a in asked]
            wait_for(lambda: server.service.engine.intake.requests == 12)
            time.sleep(0.2)
            assert parts.pipeline is not None
            assert parts.pipeline.usage().misses - before == 5  # 4 that run, and one ahead
            gate.open()
            assert {a.result().status_code for a in answers} == {200}


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_that_takes_too_long_is_taken_out(
    stream: bool, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(parts, request_seconds=0.3) as server, server.client() as http:
        gate = Gate(monkeypatch)
        began = time.monotonic()
        answer = http.post(CHAT, json=body(tokens=900, stream=stream))
        assert time.monotonic() - began < 2
        assert answer.status_code == 504
        assert error_of(answer)["code"] == "deadline_exceeded"
        gate.open()
        assert server.idle()


def test_a_stream_that_takes_too_long_ends_with_an_error(parts: Parts) -> None:
    with running(parts, request_seconds=0.2) as server, server.client() as http:
        with http.stream("POST", CHAT, json=body(tokens=900, stream=True)) as response:
            found = list(events(response))
        assert found[-1]["error"]["code"] == "deadline_exceeded"
        assert server.idle()


def drained(server: Running) -> None:
    """What SIGTERM does."""
    server.server.handle_exit(15, None)


def test_requests_in_flight_finish_when_a_server_ends(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(parts) as server, server.client() as http:
        gate = Gate(monkeypatch)
        with ThreadPoolExecutor(6) as pool:
            answers = [pool.submit(http.post, CHAT, json=body()) for _ in range(6)]
            wait_for(lambda: server.service.engine.intake.requests == 6)
            drained(server)
            wait_for(lambda: server.service.engine.draining)
            gate.open()
            assert {a.result().status_code for a in answers} == {200}


def test_who_comes_while_a_server_ends_is_told_so(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(parts) as server, server.client() as http:
        gate = Gate(monkeypatch)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(http.post, CHAT, json=body())
            wait_for(lambda: server.service.engine.intake.requests == 1)
            drained(server)
            wait_for(lambda: server.service.engine.draining)
            time.sleep(0.3)  # uvicorn looks ten times a second whether it is to end
            with server.client() as other:
                refused = other.post(CHAT, json=body())
                assert (refused.status_code, error_of(refused)["code"]) == (503, "shutting_down")
                assert refused.headers["connection"] == "close"
                health = other.get("/health")
                assert (health.status_code, health.json()["status"]) == (503, "draining")
            gate.open()
            assert answer.result().status_code == 200


def test_a_stream_of_several_prompts_is_accepted_as_a_whole(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"prompt": ["One", "Two", "Three"], "temperature": 0, "max_tokens": 6, "n": 2}
    with running(parts) as server, server.client() as http:
        expected = http.post(TEXT, json=asked).json()
        gate = Gate(monkeypatch)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(streamed, http, TEXT, asked | {"timings": True})
            wait_for(lambda: server.service.engine.intake.requests == 3)
            drained(server)
            wait_for(lambda: server.service.engine.draining)
            gate.open()
            *chunks, done = answer.result()
        assert done == "[DONE]"
        assert [joined(chunks, i) for i in range(6)] == [text_of(expected, i) for i in range(6)]
        assert [i for i, chunk in enumerate(chunks) if "timings" in chunk] == [len(chunks) - 1]


def test_a_stream_of_several_prompts_ends_with_the_first_that_fails(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"prompt": ["One", "Two " * parts.memory.max_context, "Three"], "max_tokens": 900}
    with running(parts) as server, server.client() as http:
        refused = http.post(TEXT, json=asked | {"stream": True})
        text = refused.text if refused.status_code == 200 else json.dumps(refused.json())
        assert "context_length_exceeded" in text
        assert server.idle()


def test_what_cannot_finish_in_time_is_told_so(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(parts, drain_seconds=0.2) as server, server.client() as http:
        plain = Step.run

        def slow(step: Step, plan: BatchPlan[Any]) -> StepResult:
            time.sleep(0.02)
            return plain(step, plan)

        monkeypatch.setattr(Step, "run", slow)
        with http.stream("POST", CHAT, json=body(tokens=900, stream=True)) as response:
            chunks = events(response)
            next(chunks)
            drained(server)
            *_, last = chunks
        assert last["error"]["code"] == "shutting_down"


def test_a_second_ctrl_c_waits_for_nothing_and_tells_who_waits(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(parts, drain_seconds=60) as server, server.client() as http:
        plain = Step.run

        def slow(step: Step, plan: BatchPlan[Any]) -> StepResult:
            time.sleep(0.02)
            return plain(step, plan)

        monkeypatch.setattr(Step, "run", slow)
        with http.stream("POST", CHAT, json=body(tokens=900, stream=True)) as response:
            chunks = events(response)
            next(chunks)
            began = time.monotonic()
            server.server.handle_exit(signal.SIGINT, None)
            wait_for(lambda: server.service.engine.draining)
            server.server.handle_exit(signal.SIGINT, None)
            *_, last = chunks
        assert last["error"]["code"] == "shutting_down"
        wait_for(lambda: not server.service.engine.loop.alive)
        assert time.monotonic() - began < 10


def test_a_body_that_does_not_come_is_not_waited_for(parts: Parts) -> None:
    with (
        running(parts, body_seconds=0.2) as server,
        socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as sock,
    ):
        sock.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"
        )
        sock.settimeout(5)
        assert sock.recv(1000).startswith(b"HTTP/1.1 408")
        assert server.idle()


@pytest.mark.slow
def test_five_hundred_large_pictures_at_once_take_bounded_memory(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H42: 4 megapixels each; the peak is that of those that are prepared, not of those that
    wait."""
    asked = body(data_url(2000, 2000), "What is it?", tokens=2)
    asked["mm_processor_kwargs"] = {"max_pixels": 32 * 32 * 4}
    raw = json.dumps(asked).encode()
    limit = 32 << 20
    with running(parts, max_waiting=64, max_waiting_bytes=limit, max_body_bytes=limit) as server:
        base = _rss()
        peak = [base]
        stop = threading.Event()
        watcher = threading.Thread(target=_watch, args=(peak, stop))
        watcher.start()
        headers = {"content-type": "application/json"}
        with server.client() as http, ThreadPoolExecutor(100) as pool:
            answers = list(
                pool.map(lambda _: http.post(CHAT, content=raw, headers=headers), range(500))
            )
        stop.set()
        watcher.join()
        assert {a.status_code for a in answers} == {200, 429}
        assert len({text_of(a.json()) for a in answers if a.status_code == 200}) == 1
        # Bodies twice (as bytes and parsed), 8 decoded pictures of 12 MB in three forms, caches.
        assert peak[0] - base < 2 * limit + 8 * 3 * 12e6 + 200e6
        assert server.idle()


def _rss() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096


def _watch(peak: list[int], stop: threading.Event) -> None:
    while not stop.wait(0.02):
        peak[0] = max(peak[0], _rss())


def test_text_and_chat_wait_in_the_same_queue(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(parts, max_waiting=0) as server, server.client() as http:
        gate = Gate(monkeypatch)
        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(http.post, CHAT, json=body()) for _ in range(4)]
            wait_for(lambda: server.service.engine.intake.requests == 4)
            asked = {"prompt": "Hello"}
            assert http.post(TEXT, json=asked).status_code == 429
            assert http.get("/health").status_code == 200
            gate.open()
            assert {a.result().status_code for a in answers} == {200}
