"""Errors that nobody foresaw: one request's answer in the usual form, and nobody else's matter."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from firstlight.core.plan import BatchPlan
from firstlight.engine.admission import Admission
from firstlight.engine.aio import engine as aio_engine
from firstlight.engine.build import Parts
from firstlight.engine.step import Step, StepResult
from tests.server.asking import CHAT, TEXT, body, error_of
from tests.server.running import running


class Panic(BaseException):
    """What a library in Rust raises when it gives up."""


@pytest.mark.parametrize("stream", [False, True])
def test_an_error_of_our_own_is_an_answer_in_openais_form_without_its_words(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("a secret prompt")

    with running(parts) as server, server.client() as http:
        monkeypatch.setattr(Admission, "read_chat", broken)
        with caplog.at_level(logging.ERROR, "firstlight"):
            answer = http.post(CHAT, json=body(stream=stream), headers={"X-Request-Id": "mine"})
        assert answer.status_code == 500
        error = error_of(answer)
        assert (error["type"], error["code"]) == ("server_error", "internal_error")
        assert "mine" in error["message"]
        assert "secret" not in answer.text + caplog.text
        monkeypatch.undo()
        assert http.post(CHAT, json=body()).status_code == 200
        assert server.idle()


def test_a_panic_while_a_request_is_prepared_is_that_requests_error(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    def panics(*_: Any, **__: Any) -> Any:
        raise Panic

    with running(parts) as server, server.client() as http:
        monkeypatch.setattr(Admission, "read_text", panics)
        answer = http.post(TEXT, json={"prompt": "a"})
        assert (answer.status_code, error_of(answer)["code"]) == (500, "request_failed")
        assert http.post(CHAT, json=body()).status_code == 200
        assert server.idle()


def test_a_panic_in_a_step_does_not_end_the_step_loop(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Step.run
    armed = threading.Event()

    def run(self: Step, plan: BatchPlan[Any]) -> StepResult:
        if armed.is_set():
            armed.clear()
            raise Panic
        return plain(self, plan)

    with running(parts) as server, server.client() as http:
        monkeypatch.setattr(Step, "run", run)
        armed.set()
        assert http.post(CHAT, json=body()).status_code in (500, 503)
        assert http.post(CHAT, json=body()).status_code == 200
        assert http.get("/health").json()["status"] == "ok"
        assert server.idle()


def test_a_step_that_hangs_does_not_keep_the_server(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = Step.run
    entered, go_on = threading.Event(), threading.Event()

    def stuck(self: Step, plan: BatchPlan[Any]) -> StepResult:
        entered.set()
        go_on.wait(20)
        return plain(self, plan)

    monkeypatch.setattr(Step, "run", stuck)
    monkeypatch.setattr(aio_engine, "_STOP_S", 0.1)
    answers: list[int] = []
    with running(parts, drain_seconds=0.1) as server, server.client() as http:
        asking = threading.Thread(
            target=lambda: answers.append(http.post(CHAT, json=body()).status_code)
        )
        asking.start()
        assert entered.wait(5)
        began = time.monotonic()
        server.server.handle_exit(15, None)
        asking.join(5)
        assert answers == [503]
    assert time.monotonic() - began < 5
    go_on.set()
    server.service.engine.loop.stop(10)
    assert not server.service.engine.loop.alive
