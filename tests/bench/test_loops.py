"""How many requests are under way, and from when their time counts."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from firstlight.bench.arrivals import arrivals
from tests.bench.fake_server import FakeServer, answer
from tests.bench.loads import load


def test_a_closed_load_has_exactly_its_clients_requests_under_way() -> None:
    server = FakeServer(script=lambda n: answer("a", pause=0.03))
    found = load(server, num_requests=9, concurrency=3)
    assert (len(found.answers), server.most_in_flight) == (9, 3)
    assert all(a.due == a.sent for a in found.answers)


def test_warm_up_requests_do_not_count_and_ask_something_else() -> None:
    server = FakeServer()
    found = load(server, num_requests=2, warmup=2)
    texts = [asked["messages"][0]["content"][-1]["text"] for asked in server.asked]
    assert (len(found.answers), len(set(texts))) == (2, 4)


def test_an_open_load_sends_what_is_due_whatever_is_unanswered() -> None:
    server = FakeServer(script=lambda n: answer("a", pause=0.5))
    found = load(server, num_requests=6, request_rate=200.0)
    assert server.most_in_flight == 6
    assert max(a.sent - a.due for a in found.answers) < 0.5


def test_requests_come_at_the_times_that_the_seed_gives() -> None:
    found = load(FakeServer(), num_requests=5, request_rate=100.0, seed=3)
    due = [a.due - found.start for a in found.answers]
    assert due == pytest.approx(arrivals(100.0, 5, 3), abs=1e-6)


def test_a_request_that_waits_behind_a_stall_counts_from_when_it_was_due() -> None:
    # The first answer stalls, and only one request may be under way. Measured from when they were
    # sent, the others took no time at all.
    server = FakeServer(script=lambda n: answer("a", pause=0.4 if n == 0 else 0.0))
    found = load(server, num_requests=4, request_rate=1000.0, max_concurrency=1)
    assert server.most_in_flight == 1
    for late in found.answers[1:]:
        assert late.pieces[0] - late.sent < 0.2
        assert late.ttft > 0.3


def test_arrivals_have_the_rate_they_were_asked_for() -> None:
    times = arrivals(50.0, 4001, seed=1)
    gaps = [b - a for a, b in pairwise(times)]
    assert times[0] == 0
    assert statistics.mean(gaps) == pytest.approx(1 / 50, rel=0.06)
    # Of an exponential distribution the deviation is the mean.
    assert statistics.stdev(gaps) == pytest.approx(1 / 50, rel=0.1)


def test_arrivals_are_the_same_for_the_same_seed_alone() -> None:
    assert arrivals(2.0, 9, seed=1) == arrivals(2.0, 9, seed=1) != arrivals(2.0, 9, seed=2)


def test_an_error_takes_no_other_request_with_it() -> None:
    server = FakeServer(script=lambda n: [None] if n == 1 else answer("a"))
    found = load(server, num_requests=4, concurrency=2)
    assert [a.error is None for a in found.answers].count(False) == 1
