"""What the load test claims of a server fails when it is not so."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest
from tools.load.asked import all_asked
from tools.load.bad import Bad, all_bad
from tools.load.checks import SLOPE, Check, of_answers, of_health, of_memory, of_rest
from tools.load.process import Facts, ServerProcess, running
from tools.load.tally import Tally, Trouble
from tools.load.watch import Health, Idle, Watch

MIB = 1 << 20


def watch(health: list[Health] = [], facts: list[tuple[float, Facts]] = []) -> Watch:  # noqa: B006
    return Watch(cast(ServerProcess, Path()), lambda: 0, list(health), list(facts))


def failing(checks: list[Check]) -> list[str]:
    return [check.name for check in checks if not check.holds]


def look(at: float, steps: int = 0, status: str | None = "ok", flying: int = 1) -> Health:
    return Health(at, status, steps, 0, 0.01, flying)


def test_each_trouble_fails_its_own_claim() -> None:
    tally = Tally(troubles=[Trouble("wrong", "text", "a instead of b", 0, 1)])
    assert failing(list(of_answers(tally))) == ["wrong answers", "answers compared"]
    tally.fine["whole"] = 1
    assert failing(list(of_answers(tally, lambda trouble: True))) == []


def test_an_answer_of_health_that_is_not_ok_is_noticed() -> None:
    assert failing(list(of_health(watch([look(0, 1), look(1, 2)])))) == []
    assert failing(list(of_health(watch([look(0, 1), look(1, 2, None)])))) == ["/health"]


def test_a_loop_that_stands_still_with_requests_in_flight_is_noticed() -> None:
    still = [look(at, 7) for at in range(20)]
    assert failing(list(of_health(watch(still)))) == ["longest without a step, s"]
    resting = [look(at, 7, flying=0) for at in range(20)]
    assert failing(list(of_health(watch(resting)))) == []


@pytest.mark.parametrize(("per_minute", "expected"), [(0, 0), (2 * SLOPE, 1), (-2 * SLOPE, 0)])
def test_memory_that_grows_is_noticed_and_the_beginning_does_not_count(
    per_minute: float, expected: int
) -> None:
    rise = [(float(t), Facts(100 * MIB + t * MIB, 1, 1)) for t in range(300)]
    then = [(float(t), Facts(400 * MIB + int(t * per_minute / 60), 1, 1)) for t in range(300, 600)]
    found = failing(list(of_memory(watch(facts=[*rise, *then]), 600)))
    assert len(found) == expected


def at_rest(held: int = 0, threads: int = 5, files: int = 9) -> Idle:
    pages = {"free": 3, "cached": 4, "held": held}
    return Idle(Facts(MIB, threads, files), pages, {"num_requests_running": held}, {})


def test_what_is_left_of_requests_is_noticed() -> None:
    assert failing(list(of_rest(at_rest(), at_rest()))) == []
    found = failing(list(of_rest(at_rest(), at_rest(held=1, threads=6, files=10))))
    assert len(found) == 4


def test_a_refusal_is_compared_with_what_it_is_to_be() -> None:
    bad = Bad("field", "/v1/completions", b"{}", 400, "prompt")
    assert bad.wrong(400, {"param": "prompt[0]"}) is None
    assert bad.wrong(400, {"param": None}) is not None
    assert bad.wrong(500, {"param": "prompt"}) is not None
    nowhere = Bad("no JSON", "/v1/completions", b"{", 400)
    assert nowhere.wrong(400, {"param": None}) is None
    assert nowhere.wrong(400, {"param": "prompt"}) is not None


def test_requests_are_distinct_and_the_same_each_time() -> None:
    asked = all_asked(3, 60)
    assert len({repr((one.path, one.body)) for one in asked}) == 60
    assert asked == all_asked(3, 60)
    assert {one.path for one in asked} == {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
    }


def test_bad_requests_have_names_of_their_own() -> None:
    kinds = [bad.kind for bad in all_bad(0, 64)]
    assert len(set(kinds)) == len(kinds)


def test_a_process_runs_until_it_is_dead_and_not_until_it_is_buried() -> None:
    child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)
    assert running(child.pid)
    child.kill()
    until = time.monotonic() + 5
    while running(child.pid) and time.monotonic() < until:
        time.sleep(0.005)
    assert not running(child.pid)  # nobody has waited for it
    child.communicate()
    assert not running(child.pid)
