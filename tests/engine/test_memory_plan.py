from __future__ import annotations

import pytest
import torch

from firstlight.config import EngineConfig
from firstlight.engine.memory_plan import MemoryPlan, plan_memory
from firstlight.errors import ConfigError
from firstlight.memory import LayerShape

LAYERS = [LayerShape(2, 8, 8)] * 3  # 3 * 2 * 16 columns * 4 bytes = 384 bytes a token


def plan(model_context: int = 100, **settings: object) -> MemoryPlan:
    config = EngineConfig.from_options({"page_size": 4, "max_num_seqs": 2, **settings})
    return plan_memory(config, LAYERS, [None] * 3, torch.float32, model_context)


def test_the_pool_holds_every_request_at_full_length_and_the_sink() -> None:
    whole = plan()
    assert (whole.n_pages, whole.max_context, whole.side_pages) == (2 * 25 + 1, 100, (2 * 25 + 1,))


def test_the_byte_limit_shortens_the_context_when_none_was_asked_for() -> None:
    limited = plan(kv_bytes=11 * 4 * 384)
    assert (limited.n_pages, limited.max_context, limited.max_pages) == (11, 40, 10)


def test_a_context_beyond_the_model_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"max_context = 101; the model was made for at most 100"):
        plan(max_context=101)


def test_a_context_beyond_the_byte_limit_is_refused_with_both_numbers() -> None:
    with pytest.raises(ConfigError, match=r"max_context = 60 does not fit the 40 tokens"):
        plan(max_context=60, kv_bytes=11 * 4 * 384)


def test_pages_that_were_asked_for_are_kept() -> None:
    kept = plan(kv_pages=8)
    assert (kept.n_pages, kept.max_context, kept.limit) == (8, 28, "kv_pages = 8")


def test_the_setting_that_limits_the_context_is_named() -> None:
    assert plan().limit == plan(kv_pages=26).limit == ""
    assert plan(max_context=50).limit == "max_context = 50"
    assert plan(kv_pages=25).limit == "kv_pages = 25"
    assert plan(kv_bytes=20_000).limit == "kv_bytes = 20000"


def test_a_byte_limit_below_two_pages_is_refused_with_what_they_take() -> None:
    two = 2 * 4 * 384
    assert plan(kv_bytes=two).n_pages == 2
    message = f"kv_bytes = {two - 1} is too little; two pages .* of 4 tokens take {two} bytes"
    with pytest.raises(ConfigError, match=message):
        plan(kv_bytes=two - 1)


@pytest.mark.parametrize(
    ("settings", "who"),
    [
        ({"page_size": 1, "kv_pages": 2}, "kv_pages = 2"),
        ({"page_size": 1, "kv_bytes": 2 * 384}, "kv_bytes = 768"),
        ({"model_context": 1}, "the model"),
    ],
    ids=str,
)
def test_a_context_without_room_for_an_answer_is_refused(
    settings: dict[str, int], who: str
) -> None:
    with pytest.raises(ConfigError, match=f"{who} gives a context of 1 token; .* at least 2"):
        plan(**settings)


def windowed(windows: list[int | None], **settings: object) -> MemoryPlan:
    config = EngineConfig.from_options(
        {"page_size": 4, "max_num_seqs": 2, "max_batch_tokens": 16, **settings}
    )
    return plan_memory(config, LAYERS, windows, torch.float32, 1000)


def test_a_windowed_side_holds_windows_and_a_step_twice_and_no_more() -> None:
    plan = windowed([8, None, 8])
    # A window of 8 lies in up to 3 pages and one is being filled, for two requests; 4 for a step.
    assert [side.name for side in plan.layout.sides] == ["full", "window_8"]
    assert plan.side_pages == (2 * 250 + 1, 2 * (2 * 4 + 4) + 1)


def test_bytes_are_shared_between_the_sides() -> None:
    token = 128  # bytes of one layer
    plan = windowed([8, None, 8], kv_bytes=25 * 4 * 2 * token + 101 * 4 * token)
    assert plan.side_pages == (101, 25)


def test_only_windowed_layers_leave_the_length_of_the_context_to_the_model() -> None:
    plan = windowed([8, 8, 8], kv_bytes=25 * 4 * 3 * 128)
    assert (plan.n_pages, plan.max_context, plan.side_pages) == (501, 1000, (25,))


def test_a_sliding_pool_below_one_window_is_refused_with_what_would_do() -> None:
    with pytest.raises(ConfigError, match=r"sliding_pages = 3 .* window of 8 .* at least 4"):
        windowed([8, None, 8], sliding_pages=3)
    assert windowed([8, None, 8], sliding_pages=4).side_pages[1] == 4


@pytest.mark.parametrize(
    ("page_size", "window", "least"), [(1, 8, 9), (4, 8, 4), (4, 9, 4), (4, 10, 5), (4, 1, 2)]
)
def test_the_smallest_sliding_pool_is_the_pages_that_a_window_touches_and_the_sink(
    page_size: int, window: int, least: int
) -> None:
    sizes = {"page_size": page_size}
    if least > 2:  # fewer than 3 are refused by the configuration already
        with pytest.raises(ConfigError, match=f"at least {least} "):
            windowed([window, None, window], sliding_pages=least - 1, **sizes)
    taken = max(least, 3)
    plan = windowed([window, None, window], sliding_pages=taken, **sizes)
    assert plan.side_pages[1] == taken
