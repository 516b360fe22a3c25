"""Stop strings end the text at the same place however it is cut into pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.engine.stop import StopMatcher


def _run(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    matcher = StopMatcher(stops)
    returned = [matcher.push(piece) for piece in pieces]
    if matcher.matched is None:
        returned.append(matcher.finish())
    return returned, matcher.matched


@pytest.mark.parametrize(
    ("stops", "text", "matched"),
    [
        (["XYZ"], "abc", "XYZ"),
        (["cX"], "ab", "cX"),
        (["Z", "XYZ"], "abc", "XYZ"),
        (["XYZd", "Y"], "abcX", "Y"),
        (["f"], "abcXYZde", "f"),
        (["a"], "", "a"),
        (["fg", "abcd"], "abcXYZdef", None),
        ([], "abcXYZdef", None),
    ],
)
@pytest.mark.parametrize("cut", [1, 2, 4, 9])
def test_the_text_ends_before_the_match(
    stops: list[str], text: str, matched: str | None, cut: int
) -> None:
    whole = "abcXYZdef"
    pieces = [whole[i : i + cut] for i in range(0, len(whole), cut)]
    returned, found = _run(stops, pieces)
    assert "".join(returned) == text
    assert found == matched


def test_text_is_held_only_while_a_stop_string_may_begin_in_it() -> None:
    returned, _ = _run(["XYZ"], ["aX", "Yb", "X", "X", "Y", "c"])
    assert returned == ["a", "XYb", "", "X", "", "XYc", ""]


def test_what_overlaps_itself_is_found() -> None:
    assert _run(["aab"], ["a", "a", "a", "b"]) == (["", "", "a", ""], "aab")


_TEXT = st.text("abX", max_size=30)


@given(
    text=_TEXT, stops=st.lists(st.text("abX", min_size=1, max_size=4), max_size=3), data=st.data()
)
def test_pieces_do_not_matter(text: str, stops: list[str], data: st.DataObject) -> None:
    size = st.integers(0, len(text))
    borders = sorted({0, len(text), *data.draw(st.lists(size, max_size=6))})
    pieces = [text[a:b] for a, b in itertools.pairwise(borders)]
    returned, matched = _run(stops, pieces)
    single, single_matched = _run(stops, list(text))
    assert "".join(returned) == "".join(single)
    assert matched == single_matched
    assert not any(stop in "".join(returned) for stop in stops)
    if matched is None:
        assert "".join(returned) == text
    else:
        assert text.startswith("".join(returned) + matched)
