"""Many clients at once, some of which leave and some of which ask for nonsense (case H32)."""

from __future__ import annotations

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from firstlight.engine.build import Parts
from tests.server.asking import CHAT, body, data_url, events, joined, text_of
from tests.server.running import Running, running

CLIENTS = 8
BAD: list[dict[str, Any]] = [
    {"max_tokens": 0},
    {"messages": []},
    {"stop_token_ids": [2**30]},
    {"tools": [{}]},
]


def questions() -> list[dict[str, Any]]:
    """Text, one picture, three of different sizes, a long text, and a question of several turns."""
    sizes = [(32, 32), (96, 64), (128, 32)]
    turns = [
        *body(data_url(64, 64, 7), "What is it?")["messages"],
        {"role": "assistant", "content": "A square."},
        *body("And now?")["messages"],
    ]
    return [
        body("What is it?", tokens=12),
        body(data_url(seed=11), "What is it?", tokens=20),
        body(*(data_url(*size, seed=i) for i, size in enumerate(sizes)), "Compare.", tokens=8),
        body("word " * 90, tokens=30),
        body(tokens=10) | {"messages": turns},
    ]


class Client:
    """Asks over and over, and counts what became of it."""

    def __init__(self, server: Running, expected: list[tuple[dict[str, Any], str]]) -> None:
        self._server = server
        self._expected = expected
        self.seen: Counter[str] = Counter()

    def run(self, seed: int, until: float) -> Counter[str]:
        """Until that time; every answer must be the one that the request gets alone."""
        draw = random.Random(seed)
        with self._server.client() as http:
            while time.monotonic() < until:
                asked, answer = draw.choice(self._expected)
                kind = draw.random()
                if kind < 0.05:
                    assert http.post(CHAT, json=asked | draw.choice(BAD)).status_code == 400
                    self.seen["refused"] += 1
                elif kind < 0.15:
                    self._leave(http, asked, draw)
                elif kind < 0.6:
                    with http.stream("POST", CHAT, json=asked | {"stream": True}) as response:
                        *chunks, last = events(response)
                    assert last == "[DONE]"
                    assert joined(chunks) == answer
                    self.seen["streamed"] += 1
                else:
                    assert text_of(http.post(CHAT, json=asked).json()) == answer
                    self.seen["whole"] += 1
        return self.seen

    def _leave(self, http: httpx2.Client, asked: dict[str, Any], draw: random.Random) -> None:
        with http.stream("POST", CHAT, json=asked | {"stream": True}) as response:
            for i, _ in enumerate(events(response)):
                if i >= draw.randrange(4):
                    break
        self.seen["left"] += 1


def under_load(parts: Parts, seconds: float) -> Counter[str]:
    """What became of the requests of all clients."""
    with running(parts, max_waiting=CLIENTS) as server:
        with server.client() as http:
            asked = questions()
            expected = [(a, text_of(http.post(CHAT, json=a).json())) for a in asked]
        until = time.monotonic() + seconds
        client = Client(server, expected)
        with ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda seed: client.run(seed, until), range(CLIENTS)))
        assert server.idle()
        assert server.service.engine.loop.faults == 0
        assert server.service.parts.kv.usage().pages.held == 0
        with server.client() as http:
            assert http.get("/health").status_code == 200
    return client.seen


def test_every_answer_under_load_is_the_one_that_its_request_gets_alone(parts: Parts) -> None:
    seen = under_load(parts, 1.0)
    assert seen["whole"] + seen["streamed"] >= CLIENTS


@pytest.mark.slow
def test_the_same_for_a_minute(parts: Parts) -> None:
    seen = under_load(parts, 60)
    assert min(seen[kind] for kind in ("refused", "left", "whole", "streamed")) >= 10
