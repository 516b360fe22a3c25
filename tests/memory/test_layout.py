from __future__ import annotations

import pytest

from firstlight.errors import ConfigError
from firstlight.memory import KVLayout, SideSpec


def test_layers_with_equal_windows_share_a_side_and_full_comes_first() -> None:
    layout = KVLayout.of([512, 512, None, 512, 1024], max_context=8192)
    assert [side.name for side in layout.sides] == ["full", "window_512", "window_1024"]
    assert [side.window for side in layout.sides] == [None, 512, 1024]
    assert layout.side_of_layer == (1, 1, 0, 1, 2)


@pytest.mark.parametrize(("window", "name"), [(63, "window_63"), (64, "full"), (100, "full")])
def test_a_window_as_long_as_the_context_counts_as_full(window: int, name: str) -> None:
    assert [side.name for side in KVLayout.of([window], max_context=64).sides] == [name]


def test_a_model_whose_layers_all_slide_has_no_full_side() -> None:
    layout = KVLayout.of([8, 8], max_context=64)
    assert [side.name for side in layout.sides] == ["window_8"]


@pytest.mark.parametrize(
    ("window", "position", "first"), [(None, 9, 0), (4, 9, 6), (4, 2, 0), (1, 9, 9)]
)
def test_a_query_sees_itself_and_the_rest_of_its_window(
    window: int | None, position: int, first: int
) -> None:
    assert SideSpec("side", window).first_seen(position) == first


def test_a_window_of_no_token_and_a_model_without_layers_are_refused() -> None:
    with pytest.raises(ConfigError, match="sliding window = 0"):
        KVLayout.of([None, 0], max_context=64)
    with pytest.raises(ConfigError, match="at least one attention layer"):
        KVLayout.of([], max_context=64)
