"""Text comes out token by token, never to be taken back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstlight.engine.detokenizer import Detokenizer
from tests.engine.tokenizers import byte_level, sentencepiece_like

SAMPLE = "é🫠龜👨‍👩‍👧 and plain words\n"


def _pieces(tokenizer: Any, ids: Sequence[int], stop: Sequence[str] = ()) -> tuple[list[str], str]:
    """What each push returned, and what finish did."""
    detokenizer = Detokenizer(tokenizer, stop)
    returned = [detokenizer.push(token) for token in ids]
    last = detokenizer.finish()
    assert detokenizer.text == "".join(returned) + last
    return returned, last


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@settings(max_examples=400, deadline=None)
@given(ids=st.lists(st.integers(0, 358), max_size=60))
def test_pieces_of_any_ids_join_to_the_text_of_all(ids: list[int]) -> None:
    """Random ids are mostly broken characters, with special tokens among them."""
    tokenizer = byte_level("qwen")
    returned, last = _pieces(tokenizer, ids)
    assert "".join(returned) + last == tokenizer.decode(ids, skip_special_tokens=True)


@settings(max_examples=200, deadline=None)
@given(ids=st.lists(st.sampled_from(range(128, 256)), min_size=30, max_size=80))
def test_a_flood_of_broken_bytes_is_not_held_for_ever(ids: list[int]) -> None:
    tokenizer = byte_level("qwen")
    returned, last = _pieces(tokenizer, ids)
    assert "".join(returned) + last == tokenizer.decode(ids, skip_special_tokens=True)
    assert len(last) < 20


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
@pytest.mark.parametrize("name", ["qwen", "first", "prepend"])
def test_any_text_comes_back_without_half_characters(name: str, text: str) -> None:
    tokenizer = byte_level(name) if name == "qwen" else sentencepiece_like(name)
    # Special tokens are left out of answers, also those that the tokenizer has no role for.
    special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    special.update(tokenizer.all_special_ids)
    ids = [i for i in _encode(tokenizer, text) if i not in special]
    whole = tokenizer.decode(ids)
    returned, last = _pieces(tokenizer, ids)
    assert "".join(returned) + last == whole
    if "\ufffd" not in whole:
        assert not any("\ufffd" in piece for piece in returned)


@pytest.mark.parametrize("name", ["qwen", "first", "always", "prepend"])
def test_characters_of_several_tokens_come_out_whole(name: str) -> None:
    tokenizer = byte_level(name) if name == "qwen" else sentencepiece_like(name)
    ids = _encode(tokenizer, SAMPLE)
    assert any("\ufffd" in tokenizer.decode([i]) for i in ids)
    returned, last = _pieces(tokenizer, ids)
    assert "".join(returned) == SAMPLE
    assert last == ""
    for piece in returned:
        piece.encode("utf-8")
        assert "\ufffd" not in piece


def test_each_word_comes_with_its_own_token() -> None:
    tokenizer = sentencepiece_like("first")
    ids = tokenizer.convert_tokens_to_ids(["▁hi", "▁there", ".", "▁hi"])
    assert _pieces(tokenizer, ids) == (["hi", " there", ".", " hi"], "")


def test_a_character_cut_by_the_end_is_a_replacement_character() -> None:
    tokenizer = byte_level("qwen")
    ids = _encode(tokenizer, "a🫠")[:-1]
    returned, last = _pieces(tokenizer, ids)
    assert "".join(returned) == "a"
    assert last == "\ufffd" == tokenizer.decode(ids)[1:]


def test_a_broken_byte_does_not_take_back_a_good_character() -> None:
    tokenizer = sentencepiece_like("first")
    ids = [*_encode(tokenizer, "hi🫠"), *tokenizer.convert_tokens_to_ids(["<0xE2>", "▁hi"])]
    returned, last = _pieces(tokenizer, ids)
    assert "".join(returned) + last == "hi🫠\ufffd hi"


def test_two_requests_share_nothing() -> None:
    tokenizer = byte_level("qwen")
    texts = ["é🫠", "龜龜"]
    streams = [_encode(tokenizer, text) for text in texts]
    detokenizers = [Detokenizer(tokenizer) for _ in texts]
    for step in range(max(map(len, streams))):
        for stream, detokenizer in zip(streams, detokenizers, strict=True):
            if step < len(stream):
                detokenizer.push(stream[step])
    assert [d.text for d in detokenizers] == texts


def test_special_tokens_are_left_out_unless_asked_for() -> None:
    tokenizer = byte_level("qwen")
    ids = _encode(tokenizer, "a<|im_end|>b<|image_pad|>")
    assert "".join(_pieces(tokenizer, ids)[0]) == "ab"
    keeping = Detokenizer(tokenizer, skip_special_tokens=False)
    assert "".join(keeping.push(i) for i in ids) == "a<|im_end|>b<|image_pad|>"


def test_a_long_run_of_special_tokens_is_not_kept() -> None:
    tokenizer = byte_level("qwen")
    detokenizer = Detokenizer(tokenizer)
    for _ in range(1000):
        detokenizer.push(tokenizer.eos_token_id)
    assert detokenizer.push(_encode(tokenizer, "a")[0]) == "a"


@pytest.mark.parametrize(
    ("stop", "text"),
    [
        (["XYZ"], "abc"),
        (["cX"], "ab"),
        (["Z", "XYZ"], "abc"),
        (["é🫠"], "abcXYZ"),
        (["🫠"], "abcXYZé"),
        (["never"], "abcXYZé🫠def"),
    ],
)
def test_a_stop_string_over_several_tokens_ends_the_text(stop: list[str], text: str) -> None:
    tokenizer = byte_level("qwen")
    ids = [i for character in "abcXYZé🫠def" for i in _encode(tokenizer, character)]
    detokenizer = Detokenizer(tokenizer, stop)
    pieces = [detokenizer.push(i) for i in ids]
    assert "".join(pieces) + detokenizer.finish() == detokenizer.text == text
    assert detokenizer.stopped == (None if stop == ["never"] else stop[-1])


def test_a_stop_string_may_be_completed_by_the_end_itself() -> None:
    """The replacement character of a character cut off is text like any other."""
    tokenizer = byte_level("qwen")
    detokenizer = Detokenizer(tokenizer, ["b\ufffd"])
    ids = _encode(tokenizer, "ab🫠")[:-1]
    assert "".join(detokenizer.push(i) for i in ids) + detokenizer.finish() == "a"
    assert detokenizer.stopped == "b\ufffd"


def test_nothing_follows_a_stop() -> None:
    tokenizer = byte_level("qwen")
    detokenizer = Detokenizer(tokenizer, ["b"])
    for token in _encode(tokenizer, "abc"):
        detokenizer.push(token)
    assert detokenizer.push(_encode(tokenizer, "d")[0]) == ""
    assert detokenizer.finish() == ""
    assert detokenizer.text == "a"
