"""The thread that owns an engine: what it does while nobody asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from firstlight.engine.aio import step_loop
from firstlight.engine.aio.step_loop import StepLoop
from firstlight.engine.engine import Engine


class Idle:
    """An engine that nobody asks anything."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits that a test can bear."""
    monkeypatch.setattr(step_loop, "_QUIET_S", 0.02)


def loop(when_quiet: Callable[[], bool] | None) -> StepLoop:
    made = StepLoop(
        cast(Engine, Idle()),
        lambda events: None,
        make_clean=lambda: None,
        share=False,
        clock=time.perf_counter,
        when_quiet=when_quiet,
    )
    made.start()
    return made


class Work:
    """Pieces of work, and the threads that did them."""

    def __init__(self, pieces: int, error: Exception | None = None) -> None:
        self.left = pieces
        self.done: list[str] = []
        self.ended = threading.Event()
        self._error = error

    def __call__(self) -> bool:
        if self._error is not None:
            self.ended.set()
            raise self._error
        if not self.left:
            self.ended.set()
            return False
        self.left -= 1
        self.done.append(threading.current_thread().name)
        return True


def test_work_that_can_wait_is_done_in_the_step_thread_until_none_is_left() -> None:
    work = Work(3)
    steps = loop(work)
    assert work.ended.wait(5)
    steps.stop(5)
    assert work.done == ["firstlight-step"] * 3


def test_work_that_can_wait_waits_while_orders_come() -> None:
    work = Work(3)
    steps = loop(work)
    for _ in range(40):
        steps.call(lambda: None).result(5)
        time.sleep(0.001)
    during = len(work.done)
    assert work.ended.wait(5)
    steps.stop(5)
    assert during == 0


def test_an_order_is_carried_out_between_two_pieces_of_work() -> None:
    seen: list[Any] = []
    steps: StepLoop

    def endless() -> bool:
        seen.append("work")
        return True

    steps = loop(endless)
    while len(seen) < 2:
        time.sleep(0.005)
    assert steps.call(lambda: "answer").result(5) == "answer"
    steps.stop(5)
    assert not steps.alive


def test_work_that_fails_is_logged_and_not_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    work = Work(1, ZeroDivisionError("by zero"))
    steps = loop(work)
    assert work.ended.wait(5)
    assert steps.call(lambda: "well").result(5) == "well"
    time.sleep(0.1)
    steps.stop(5)
    assert sum("nobody asks" in record.getMessage() for record in caplog.records) == 1
    assert steps.faults == 0
