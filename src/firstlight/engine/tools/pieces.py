"""What the text of an answer is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegin:
    """The model calls a function; ``index`` counts the answer's calls."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class Arguments:
    """More of the arguments of a call, JSON as the model writes it."""

    index: int
    text: str


Piece = Content | Reasoning | CallBegin | Arguments


class Parser(Protocol):
    """Reads one answer. How its text is cut into pieces does not change what it says."""

    def push(self, text: str) -> list[Piece]:
        """What is certain with this text."""
        ...

    def finish(self) -> list[Piece]:
        """What is left; no more text will come."""
        ...


def beginning_of(marker: str, text: str) -> int:
    """Characters at the end of ``text`` with which ``marker`` may begin."""
    for size in range(min(len(marker) - 1, len(text)), 0, -1):
        if marker.startswith(text[len(text) - size :]):
            return size
    return 0
