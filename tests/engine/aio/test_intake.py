"""What is in the house is counted, bounded, and forgotten when it leaves."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from firstlight.engine.aio import Intake
from firstlight.errors import OverloadedError


def test_a_request_too_many_is_refused_until_one_leaves() -> None:
    intake = Intake(2, 100, 1)
    with intake.enter():
        with intake.enter(), pytest.raises(OverloadedError, match="2 requests"), intake.enter():
            pass
        with intake.enter():
            assert intake.requests == 2
    assert intake.requests == 0


def test_bytes_too_many_are_refused_and_not_counted() -> None:
    intake = Intake(2, 100, 1)
    intake.hold(60)
    with pytest.raises(OverloadedError, match="60 bytes; with 41 more"):
        intake.hold(41)
    intake.hold(40)
    intake.let_go(60)
    assert intake.bytes == 40


def test_a_request_that_fails_leaves_too() -> None:
    intake = Intake(1, 1, 1)
    with pytest.raises(ValueError, match="x"), intake.enter():
        raise ValueError("x")
    assert intake.requests == 0


def test_the_guess_of_when_to_try_again_follows_what_requests_took() -> None:
    def guess(intake: Intake) -> float:
        with ExitStack() as stack:
            for _ in range(8):
                stack.enter_context(intake.enter())
            with pytest.raises(OverloadedError) as caught:
                stack.enter_context(intake.enter())
        return caught.value.retry_after or 0.0

    intake = Intake(8, 1, 2)
    for _ in range(100):
        intake.finished(5.0)
    assert guess(intake) == pytest.approx(8 * 5 / 2, rel=0.01)
    for _ in range(100):
        intake.finished(0.001)
    assert guess(intake) == 1
    for _ in range(100):
        intake.finished(1000)
    assert guess(intake) == 60
