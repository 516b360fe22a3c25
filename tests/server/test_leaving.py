"""Clients that leave, and errors on the way (cases H31 and H33)."""

from __future__ import annotations

import time
from typing import Any

import httpx2
import openai
import pytest

from firstlight.core.plan import BatchPlan
from firstlight.engine.build import Parts
from firstlight.engine.step import Step, StepResult
from firstlight.sampling import Draws, Sampler
from tests.server.asking import CHAT, TEXT, body, data_url, error_of, events
from tests.server.running import Running

LONG = 900


def idle_within(server: Running, seconds: float) -> bool:
    """Whether all pages are free again by then."""
    done = server.idle(seconds)
    return done and server.service.parts.kv.usage().pages.held == 0


def slow_steps(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Steps of at least that long, so that there is something to leave."""
    plain = Step.run

    def run(self: Step, plan: BatchPlan[Any]) -> StepResult:
        time.sleep(seconds)
        return plain(self, plan)

    monkeypatch.setattr(Step, "run", run)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_stream_that_is_left_is_gone_within_two_steps(
    path: str, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H31: after the first chunk; the same prompt finds its pages afterwards."""
    slow_steps(monkeypatch, 0.01)
    asked = body(data_url(seed=3), "Describe it at length.", tokens=LONG, stream=True)
    if path == TEXT:
        asked = {"prompt": "A long text", "max_tokens": LONG, "stream": True, "ignore_eos": True}
    for _ in range(5):
        with server.client() as http, http.stream("POST", path, json=asked) as response:
            next(events(response))
        assert idle_within(server, 1)
    steps = server.service.engine.loop.steps
    time.sleep(0.1)
    assert server.service.engine.loop.steps == steps
    with server.client() as http:
        again = http.post(path, json=asked | {"stream": False, "max_tokens": 1}).json()
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


@pytest.mark.parametrize("n", [1, 2])
def test_a_whole_answer_that_nobody_waits_for_is_gone_too(
    n: int, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H31: this one has no chunk in whose sending the end could be noticed."""
    slow_steps(monkeypatch, 0.01)
    with (
        httpx2.Client(base_url=server.url, timeout=0.2, verify=False) as http,
        pytest.raises(httpx2.ReadTimeout),
    ):
        http.post(CHAT, json=body(data_url(seed=4), "Describe it.", tokens=LONG, n=n))
    assert idle_within(server, 1)


@pytest.mark.slow
def test_two_hundred_that_leave_leave_nothing(server: Running) -> None:
    """H31"""
    for i in range(200):
        asked = body(data_url(seed=i % 7), "Describe it.", tokens=LONG, stream=True)
        with server.client() as http, http.stream("POST", CHAT, json=asked) as response:
            next(events(response))
    assert idle_within(server, 2)


def failing_at(monkeypatch: pytest.MonkeyPatch, token: int) -> None:
    """Requests with seed 13 fail when they have that many tokens."""
    plain = Sampler.launch

    def launch(self: Sampler, logits: Any, states: Any) -> Draws:
        for state in states:
            if state.params.seed == 13 and state.drawn == token:
                raise ZeroDivisionError("a hook of the test")
        return plain(self, logits, states)

    monkeypatch.setattr(Sampler, "launch", launch)


def test_an_error_before_the_first_token_has_its_own_status_also_as_a_stream(
    http: httpx2.Client, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H33"""
    failing_at(monkeypatch, 0)
    for stream in (False, True):
        answer = http.post(CHAT, json=body(seed=13, stream=stream), headers={"x-request-id": "r1"})
        assert answer.status_code == 500
        assert answer.headers["x-request-id"] == "r1"
        assert "r1" in error_of(answer)["message"]
    assert server.service.engine.loop.faults == 0


def test_a_later_error_is_one_last_event_and_no_clean_end(
    http: httpx2.Client, client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H33: and OpenAI's client raises."""
    failing_at(monkeypatch, 3)
    asked = body(tokens=20, seed=13)
    with http.stream("POST", CHAT, json=asked | {"stream": True}) as response:
        found = list(events(response))
    assert "error" in found[-1]
    assert "[DONE]" not in found
    assert all("error" not in chunk for chunk in found[:-1])
    stream = client.chat.completions.create(
        model="qwen3_vl",
        messages=asked["messages"],
        seed=13,
        max_tokens=20,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    with pytest.raises(openai.APIError):
        list(stream)


def test_a_fault_in_one_request_leaves_its_neighbours_alone(
    server: Running, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    asked = [body("One", tokens=30), body("Two", tokens=30, seed=13), body("Three", tokens=30)]
    with server.client() as http, ThreadPoolExecutor(3) as pool:
        alone = [http.post(CHAT, json=a).json()["choices"][0]["message"] for a in asked]
        slow_steps(monkeypatch, 0.005)  # so that they run beside each other
        failing_at(monkeypatch, 10)
        answers = list(pool.map(lambda a: http.post(CHAT, json=a), asked))
    assert [a.status_code for a in answers] == [200, 500, 200]
    assert answers[0].json()["choices"][0]["message"] == alone[0]
    assert answers[2].json()["choices"][0]["message"] == alone[2]
    assert answers[1].headers["x-request-id"] in error_of(answers[1])["message"]
    assert server.service.engine.loop.faults == 0
