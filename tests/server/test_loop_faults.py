"""A fault of the step loop itself, and a loop that stands still."""

from __future__ import annotations

import logging
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from firstlight.core.plan import BatchPlan
from firstlight.engine.build import Parts
from firstlight.engine.step import Step, StepResult
from tests.server.asking import CHAT, body, error_of, events, text_of
from tests.server.running import running

ASKED = [body(text, tokens=40) for text in ("One", "Two", "Three")]


def _ended(url: str) -> bool:
    """Whether nobody listens there any more."""
    try:
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=1).close()
    except OSError:
        return True
    return False


def test_a_fault_fails_what_is_in_flight_and_the_next_request_is_served(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(parts) as server, server.client() as http:
        expected = [text_of(http.post(CHAT, json=asked).json()) for asked in ASKED]
        real = parts.engine.step
        armed = threading.Event()

        def step() -> bool:
            time.sleep(0.002)
            if armed.is_set() and len(server.service.engine.loop._live) == len(ASKED):
                armed.clear()
                raise ZeroDivisionError("a hook of the test")
            return real()

        monkeypatch.setattr(parts.engine, "step", step)
        armed.set()
        with caplog.at_level(logging.ERROR, "firstlight"), ThreadPoolExecutor(3) as pool:
            answers = list(pool.map(lambda a: http.post(CHAT, json=a), ASKED))
        assert [a.status_code for a in answers] == [503] * 3
        fault = server.service.engine.loop.last_fault
        for answer in answers:
            assert error_of(answer)["code"] == "engine_fault"
            assert str(fault) in error_of(answer)["message"]
            assert answer.headers["retry-after"] == "1"
        faults = [r for r in caplog.records if r.name == "firstlight.engine"]
        assert len(faults) == 1
        health = http.get("/health")
        assert health.status_code == 200
        assert health.json()["faults"] == 1
        assert "firstlight_engine_faults_total" in http.get("/metrics").text
        again = [text_of(http.post(CHAT, json=asked).json()) for asked in ASKED]
        assert again == expected
        assert server.idle()


def test_an_engine_that_cannot_be_mended_says_so_and_takes_nothing(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Step, plan: BatchPlan[Any]) -> StepResult:
        raise ZeroDivisionError("a hook of the test")

    with running(parts) as server, server.client() as http:
        monkeypatch.setattr(Step, "run", broken)
        first = http.post(CHAT, json=body())
        assert first.status_code == 503
        health = http.get("/health")
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        began = time.perf_counter()
        assert error_of(http.post(CHAT, json=body()))["code"] == "engine_fault"
        assert time.perf_counter() - began < 1
        assert http.get("/metrics").status_code == 200


def test_a_supervised_server_whose_engine_cannot_be_mended_ends(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Step, plan: BatchPlan[Any]) -> StepResult:
        raise ZeroDivisionError("a hook of the test")

    with running(parts) as server, server.client() as http:
        server.server._ends_when_failed = True
        monkeypatch.setattr(Step, "run", broken)
        assert http.post(CHAT, json=body()).status_code == 503
        until = time.monotonic() + 5
        while not _ended(server.url) and time.monotonic() < until:
            time.sleep(0.02)
        assert _ended(server.url)
        assert server.server.failed


def test_health_says_when_a_step_takes_too_long(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Step.run
    go_on = threading.Event()

    def stuck(self: Step, plan: BatchPlan[Any]) -> StepResult:
        go_on.wait(10)
        return plain(self, plan)

    with running(parts, stall_seconds=0.1) as server, server.client() as http:
        monkeypatch.setattr(Step, "run", stuck)
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(http.post, CHAT, json=body())
            time.sleep(0.3)
            health = http.get("/health")
            assert (health.status_code, health.json()["status"]) == (503, "stalled")
            assert http.get("/metrics").status_code == 200  # with the numbers of before
            go_on.set()
            assert answer.result().status_code == 200
        assert http.get("/health").status_code == 200


def test_a_stream_that_a_fault_ends_says_so(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(parts) as server, server.client() as http:
        real = parts.engine.step
        count = 0

        def step() -> bool:
            nonlocal count
            count += 1
            if count == 6:
                raise ZeroDivisionError("a hook of the test")
            return real()

        monkeypatch.setattr(parts.engine, "step", step)
        with http.stream("POST", CHAT, json=body(tokens=20, stream=True, n=2)) as response:
            found = list(events(response))
        assert found[-1]["error"]["code"] in ("engine_fault", "request_failed")
        assert server.idle()
