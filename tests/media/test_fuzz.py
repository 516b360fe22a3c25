"""Damaged files and data URLs give a picture or a clear error, in little time and memory.

The whole of it, 20,000 of each: ``scripts/test --slow tests/media/test_fuzz.py``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from firstlight.errors import MediaError
from tests.media.fuzz import LIMIT_MIB, LIMIT_S, Result, run, tried
from tests.media.mutations import mutated_file, mutated_url, samples

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="peaks of memory are read from /proc"
)

WHOLE = 20_000


def check(result: Result, count: int) -> None:
    """Every one was tried, none misbehaved, and both ways to end were seen."""
    assert result.faults == []
    assert sum(result.outcomes.values()) == count
    assert set(result.outcomes) == {"image", "error"}
    assert result.slowest[0] <= LIMIT_S
    assert result.largest[0] <= LIMIT_MIB


def test_some_damaged_files_and_data_urls_give_a_picture_or_an_error() -> None:
    check(run(["file", "url"], range(300)), 600)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["file", "url"])
def test_all_damaged_files_and_data_urls_give_a_picture_or_an_error(kind: str) -> None:
    check(run([kind], range(WHOLE)), WHOLE)


def test_a_seed_is_the_same_damage_every_time() -> None:
    assert mutated_file(7) == mutated_file(7)
    assert mutated_url(7) == mutated_url(7)


def test_damages_reach_every_format_and_most_change_the_file() -> None:
    made = [mutated_file(seed) for seed in range(300)]
    originals = dict(samples())
    assert {name.split()[0] for name, _ in made} == {name.split()[0] for name in originals}
    assert sum(data != originals[name] for name, data in made) > 280


def _raises() -> None:
    raise KeyError("a")


def _long() -> None:
    raise MediaError("x" * 2000)


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        (lambda: sum(range(10**6)), "processor time"),
        (lambda: len(b"x" * (64 << 20)), "MiB"),
        (_raises, "KeyError"),
        (_long, "2000 characters"),
    ],
    ids=["time", "memory", "exception", "a long error"],
)
def test_what_must_not_happen_is_found(action: Callable[[], object], fault: str) -> None:
    assert tried(lambda: None, 0.5, 8)["fault"] == ""
    assert fault in str(tried(action, 0.001, 8)["fault"])


def test_a_process_that_dies_is_a_fault_of_its_seed_and_the_next_one_goes_on() -> None:
    dies = "import os, sys; print('{\"seed\": %s}' % sys.argv[2], flush=True); os.abort()"
    result = run(["file"], range(2), (sys.executable, "-c", dies))
    assert [fault.split(":")[0] for fault in result.faults] == ["0", "1"]
    assert all("ended with -6" in fault for fault in result.faults)


def test_a_process_that_does_not_begin_is_not_started_again() -> None:
    result = run(["file"], range(20), (sys.executable, "-c", "raise SystemExit(3)"))
    assert len(result.faults) == 1
    assert "ended with 3" in result.faults[0]
