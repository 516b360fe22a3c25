"""A text that no tokenizer can read is refused by its place."""

from __future__ import annotations

import pytest

from firstlight.core.text import check_text
from firstlight.errors import RequestError


def test_half_a_surrogate_pair_is_named_with_its_place() -> None:
    with pytest.raises(RequestError, match=r"the prompt .* character 1 is '\\ud800'"):
        check_text("a\ud800", "the prompt")


def test_every_valid_character_is_taken() -> None:
    text = "a\0é龜🫠\U0010fffd"
    assert check_text(text, "it") == text
