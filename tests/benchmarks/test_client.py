"""The driver and an engine's process understand each other, and an engine's end is noticed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.peers.client import PeerError, PeerGone, Worker
from benchmarks.peers.workers.loop import Load, Request

LOAD = Load("model", "bfloat16", threads=1, context=64, vision=False)
CPUS = sorted(os.sched_getaffinity(0))[:1]


def started(log: Path) -> Worker:
    return Worker(
        Path(sys.executable),
        "tests.benchmarks.echo_worker",
        log=log,
        environment=dict(os.environ),
        cpus=CPUS,
    )


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with started(tmp_path / "log") as worker:
        worker.load(LOAD, timeout=60)
        yield worker


def ask(text: str) -> list[Request]:
    return [Request(text, [7])]


def test_an_answer_comes_back_as_it_was_given(worker: Worker) -> None:
    answer = worker.run(ask("hello"), 3)
    assert (answer.ids, answer.ttft_s, answer.total_s) == ([[8, 9, 10]], 0.25, 0.5)


def test_what_a_library_prints_does_not_disturb_the_answers(worker: Worker) -> None:
    assert worker.run(ask("print"), 1).ids == [[8]]


def test_an_engine_that_refuses_goes_on(worker: Worker) -> None:
    with pytest.raises(PeerError, match="ValueError: not this one"):
        worker.run(ask("fail"), 1)
    assert worker.run(ask("hello"), 1).ids == [[8]]


def test_an_answer_of_the_wrong_length_is_refused(worker: Worker) -> None:
    with pytest.raises(PeerError, match=r"answers of \[3\] tokens; 4 each"):
        worker.run(ask("short"), 4)


def test_a_process_that_ends_is_gone(worker: Worker) -> None:
    with pytest.raises(PeerGone):
        worker.run(ask("end"), 1)


def test_a_process_that_does_not_answer_in_time_is_ended(worker: Worker) -> None:
    with pytest.raises(PeerGone, match=r"no answer to 'run' in 0\.1 s"):
        worker.run(ask("sleep"), 1, timeout=0.1)
    with pytest.raises(PeerGone):
        worker.run(ask("hello"), 1)


def test_an_engine_that_cannot_load_says_why_in_one_line(tmp_path: Path) -> None:
    with started(tmp_path / "log") as worker, pytest.raises(PeerError) as error:
        worker.load(Load("missing", "bfloat16", 1, 64, False), timeout=60)
    assert str(error.value) == "FileNotFoundError: no such model"


def test_an_engine_is_pinned_and_its_memory_is_seen(worker: Worker) -> None:
    assert worker.facts()["cpus"] == CPUS
    memory = worker.memory()
    assert memory.peak_rss >= memory.anonymous > 1 << 20


def test_an_idle_engine_uses_no_processor(worker: Worker) -> None:
    worker.run(ask("hello"), 1)
    before = worker.cpu_seconds()
    with pytest.raises(PeerGone):
        worker.run(ask("sleep"), 1, timeout=0.3)
    assert worker.cpu_seconds() - before < 0.1
