from __future__ import annotations

import re
from typing import Any

import pytest

from firstlight.engine.scheduling import Limits, check_start
from firstlight.engine.scheduling.limits import refusal
from firstlight.errors import ConfigError
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import KVLayout
from tests.engine.scheduling.fakes import CountedMemory


def limits(**given: int) -> Limits:
    return Limits(**{"max_num_seqs": 4, "max_batch_tokens": 16, "max_encoder_rows": 64, **given})


@pytest.mark.parametrize("name", ["max_num_seqs", "max_batch_tokens", "max_encoder_rows"])
def test_a_limit_below_one_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} = 0; accepted: an int from 1"):
        limits(**{name: 0})


def test_more_requests_than_rows_of_a_step_are_refused_with_both_names() -> None:
    with pytest.raises(ConfigError, match=r"max_num_seqs = 17 and max_batch_tokens = 16"):
        limits(max_num_seqs=17)
    limits(max_num_seqs=16)


def test_a_pool_too_small_for_the_longest_context_is_refused_with_both_names() -> None:
    memory = CountedMemory(pages=9, page_size=4)
    check_start(limits(), memory, 36)
    with pytest.raises(ConfigError) as caught:
        check_start(limits(), memory, 37)
    for part in ("kv_pages = 10", "max_context = 37", "page_size = 4", "kv_pages = 11 would do"):
        assert part in str(caught.value)


def test_a_sliding_pool_too_small_for_a_chunk_and_its_window_is_refused_with_both_names() -> None:
    # 16 rows and the 7 before them touch at most 7 pages of 4.
    check_start(limits(), CountedMemory(100, 4, window=8, side_pages=7), 400)
    with pytest.raises(ConfigError) as caught:
        check_start(limits(), CountedMemory(100, 4, window=8, side_pages=6), 400)
    for part in (
        "sliding_pages = 7",
        "max_batch_tokens = 16",
        "page_size = 4",
        "window of 8",
        "sliding_pages = 8 would do",
    ):
        assert part in str(caught.value)


def test_a_sliding_pool_needs_no_more_than_a_whole_context() -> None:
    check_start(limits(), CountedMemory(100, 4, window=512, side_pages=5), 20)


CASES: list[tuple[dict[str, Any], int, int, str]] = [
    ({"pages": 9}, 37, 0, "37 tokens take 10 KV pages of 4 tokens; the pool has 9"),
    ({"pages": 50}, 40, 17, "17 positions .* max_batch_tokens = 16"),
    ({"pages": 50, "window": 8, "side_pages": 2}, 99, 0, "window of 8 .* take 3 .* has 2"),
    ({"pages": 50, "window": 8, "side_pages": 3}, 99, 9, "9 tokens and the window of 8 .* has 3"),
]


@pytest.mark.parametrize(("memory", "capacity", "block", "text"), CASES)
def test_a_request_that_could_not_run_alone_is_refused_with_both_numbers(
    memory: dict[str, Any], capacity: int, block: int, text: str
) -> None:
    error = refusal(limits(), CountedMemory(**memory), capacity, block)
    assert error is not None
    assert re.search(text, error)


@pytest.mark.parametrize(
    ("memory", "capacity", "block"),
    [
        ({"pages": 9}, 36, 16),
        ({"pages": 50, "window": 8, "side_pages": 3}, 99, 0),
        ({"pages": 50, "window": 8, "side_pages": 2}, 8, 8),
    ],
)
def test_a_request_that_just_fits_is_not(memory: dict[str, Any], capacity: int, block: int) -> None:
    assert refusal(limits(), CountedMemory(**memory), capacity, block) is None


def test_the_real_memory_is_judged_by_the_same_rules() -> None:
    layout = KVLayout.of([None, 8], 400)
    memory = KVMemory(layout, 101, (101, 7), 4, True)
    with pytest.raises(ConfigError, match=r"sliding_pages = 7 and max_batch_tokens = 16"):
        check_start(limits(), memory, 400)
    check_start(limits(max_batch_tokens=12), memory, 400)
    assert refusal(limits(), memory, 401, 0) is not None
    assert refusal(limits(), memory, 400, 0) is None
