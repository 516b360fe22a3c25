"""Single tokens as text and bytes, whatever the tokenizer writes them as."""

from __future__ import annotations

import json
import math

import pytest

from firstlight.core.output import TokenLogprob
from firstlight.server.token_text import Place, TokenText


class Pieces:
    """A tokenizer of given pieces and what each decodes to alone."""

    def __init__(self, *pieces: tuple[str, str]) -> None:
        self._pieces = pieces

    def __len__(self) -> int:
        return len(self._pieces)

    def decode(self, ids: list[int], **options: bool) -> str:
        return "".join(self._pieces[i][1] for i in ids)

    def convert_ids_to_tokens(self, token_id: int) -> str:
        return self._pieces[token_id][0]


@pytest.mark.parametrize(
    ("piece", "decoded", "raw"),
    [
        ("Hello", "Hello", b"Hello"),
        ("ĠHello", " Hello", b" Hello"),  # byte-level: a blank
        ("Ã", "\ufffd", b"\xc3"),  # byte-level: half a character
        ("ðŁ", "\ufffd", b"\xf0\x9f"),
        ("<0xE9>", "\ufffd", b"\xe9"),  # byte fallback
        ("▁Hello", "Hello", b" Hello"),  # SentencePiece, at the beginning of a text
        ("▁Hello", " Hello", b" Hello"),
        ("<|im_end|>", "<|im_end|>", b"<|im_end|>"),
        ("é", "é", "é".encode()),
    ],
)
def test_a_token_has_its_bytes(piece: str, decoded: str, raw: bytes) -> None:
    tokens = TokenText(Pieces((piece, decoded)))
    assert tokens.raw(0) == raw
    assert tokens.text(0) == raw.decode("utf-8", "replace")


ENTRY = (TokenLogprob(0, -math.inf, ((1, -0.5), (2, -math.inf))),)
HALVES = TokenText(Pieces(("a", "a"), ("Ã", "\ufffd"), ("Ä", "\ufffd")))


def test_what_is_impossible_is_a_number_that_json_has() -> None:
    """H28"""
    for value in (HALVES.chat(ENTRY), HALVES.completion(ENTRY, Place())):
        assert "-9999.0" in json.dumps(value, allow_nan=False)


def test_halves_of_characters_are_told_apart() -> None:
    (rivals,) = HALVES.completion(ENTRY, Place())["top_logprobs"]
    assert rivals == {"bytes:\\xc3": -0.5, "bytes:\\xc4": -9999.0}


def test_offsets_count_the_characters_before() -> None:
    entries = tuple(TokenLogprob(0, -1.0) for _ in range(3))
    assert HALVES.completion(entries, Place(7))["text_offset"] == [7, 8, 9]


def test_tokens_that_share_a_character_have_its_offset() -> None:
    place = Place()
    pieces = [b"a", "😀".encode()[:1], "😀".encode()[1:], b"b", b"\xe2", b"c"]
    assert [place.move(piece) for piece in pieces] == [0, 1, 1, 2, 3, 4]
