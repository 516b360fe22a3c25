"""Texts of a wanted length, for a tokenizer that nobody has shown us."""

from __future__ import annotations

import random
from dataclasses import dataclass

_TEXT = (
    "the picture shows a small red house beside an old tree and two people walk along the road "
    "under a grey sky while one of them holds what looks like a long rope or perhaps some wire "
    "near the water there is also a green boat with no name on its side"
)
WORDS = tuple(_TEXT.split())
"""Common ones, so that most tokenizers have a token for each."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Makes texts of about a number of tokens.

    Attributes:
        tokens_per_word: of the served model's tokenizer, the mean over :data:`WORDS`.
    """

    tokens_per_word: float

    def make(self, tokens: int, chance: random.Random) -> str:
        """Random words: texts of different ``chance`` part ways in their first words."""
        n = max(round(tokens / self.tokens_per_word), 1)
        return " ".join(chance.choice(WORDS) for _ in range(n))


def sample(times: int) -> str:
    """All words, ``times`` times: what :attr:`Texts.tokens_per_word` is measured on."""
    return " ".join(WORDS * times)
