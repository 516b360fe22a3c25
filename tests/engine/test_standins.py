"""Control tokens are found in texts and replaced by single characters."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstlight.engine.standins import Finder, Pattern, Standins, private_characters


def _found(tokens: list[str], text: str) -> list[str]:
    return [text[start:end] for start, end in Finder(tokens).find(text)]


def test_the_longest_token_at_a_place_is_found() -> None:
    assert _found(["<a>", "<a><b>", "<b>"], "x<a><b><a>y") == ["<a><b>", "<a>"]


@pytest.mark.parametrize("text", ["", "<", "<a", "plain"])
def test_pieces_of_tokens_are_not_found(text: str) -> None:
    assert _found(["<a>", "<abc>"], text) == []
    assert _found([], text) == []


def test_a_token_at_the_very_end_ends_there() -> None:
    assert list(Finder(["<a>", "<a long token>"]).find("x<a>")) == [(1, 4)]


@given(text=st.text("<ab>", max_size=30), tokens=st.lists(st.text("<ab>", min_size=1, max_size=5)))
def test_it_finds_what_an_alternation_longest_first_finds(text: str, tokens: list[str]) -> None:
    longest_first = sorted(set(tokens), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
    assert _found(tokens, text) == pattern.findall(text)


_TOKENS = {"<|im_end|>", "<|im_start|>", "[INST]"}


@given(texts=st.lists(st.text("<|im_end>[INST]xé", max_size=14), min_size=1, max_size=4))
def test_guarded_texts_make_no_token_together_and_can_be_restored(texts: list[str]) -> None:
    standins = Standins(private_characters(texts))
    guarded = [standins.replace(text, Pattern(_TOKENS)) for text in texts]
    joined = "".join(guarded)
    assert list(Finder(_TOKENS).find(joined)) == []
    assert standins.restore(joined) == "".join(texts)


def test_texts_without_control_tokens_are_left_as_they_are() -> None:
    standins = Standins(set())
    assert standins.replace("a < b | c > d", Pattern(_TOKENS)) == "a < b | c > d"
    assert not standins.found_in("a < b")


def test_strings_are_replaced_at_any_depth_keys_included() -> None:
    standins = Standins(set())
    value = {"k[INST]": ["[INST]", ("[INST]", 3, None, True)], "n": 1.5}
    guarded = standins.replace(value, Pattern(_TOKENS))
    assert "[INST]" not in repr(guarded)
    assert guarded["n"] == 1.5
    assert guarded[standins.replace("k[INST]", Pattern(_TOKENS))][1][1:] == [3, None, True]


def test_a_character_that_a_text_holds_is_never_a_standin() -> None:
    held = "".join(map(chr, range(0xF0000, 0xF0010)))
    standins = Standins(private_characters([{"a": held}]))
    assert standins.replace("[INST]", Pattern(_TOKENS)) not in held
