"""Tells what a model thinks from what it answers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from firstlight.engine.tools.pieces import Content, Parser, Piece, Reasoning, beginning_of


@dataclass(frozen=True, slots=True)
class Borders:
    """The texts before and behind a model's thoughts."""

    begin: str
    end: str


THINK: Final = Borders("<think>", "</think>")
KNOWN: Final = (THINK, Borders("[THINK]", "[/THINK]"))
"""Those that are told from an answer; the latter are Magistral's."""


def borders_in(template: str) -> Borders | None:
    """Those that a chat template shows; None if it shows none that are known."""
    return next((borders for borders in KNOWN if borders.end in template), None)


def reasoning_tokens(
    token_ids: Sequence[int],
    join: Callable[[Sequence[int]], str],
    borders: Borders = THINK,
    *,
    thinking: bool,
) -> int:
    """How many tokens of an answer are thoughts, their borders included.

    Args:
        join: the text of tokens, special ones included.
        thinking: the prompt has begun the thoughts.
    """
    text = join(token_ids)
    if not thinking and not text.lstrip().startswith(borders.begin):
        return 0
    if borders.end not in text:
        return len(token_ids)
    sizes = range(len(token_ids) + 1)
    return bisect_left(sizes, True, key=lambda n: borders.end in join(token_ids[:n]))


class ReasoningReader:
    """Splits the thoughts off, which come first, and gives the rest to another reader.

    Blanks at the borders of the thoughts belong to neither side.

    Args:
        rest: reads what follows the thoughts.
        borders: of the thoughts.
        thinking: the prompt has begun the thoughts.
    """

    def __init__(self, rest: Parser, borders: Borders = THINK, *, thinking: bool) -> None:
        self._rest = rest
        self._begin, self._end = borders.begin, borders.end
        self._buffer = ""
        self._thinking = thinking
        self._begun = False  # something of the thoughts was passed on
        self._answering = False  # they are over, or there are none
        self._trim = False  # blanks behind them are still to be dropped

    def push(self, text: str) -> list[Piece]:
        """What is certain with this text."""
        self._buffer += text
        if not self._answering and not self._thinking:
            self._look()
        pieces = self._think(final=False) if self._thinking else []
        return pieces + self._answer()

    def finish(self) -> list[Piece]:
        """What is left."""
        pieces = self._think(final=True) if self._thinking else []
        self._answering = True
        return pieces + self._answer() + self._rest.finish()

    def _look(self) -> None:
        """Whether the answer begins with thoughts."""
        text = self._buffer.lstrip()
        if text.startswith(self._begin):
            self._thinking, self._buffer = True, text[len(self._begin) :]
        elif not self._begin.startswith(text):
            self._answering = True

    def _think(self, *, final: bool) -> list[Piece]:
        text = self._buffer if self._begun else self._buffer.lstrip()
        if not self._begun and text.startswith(
            self._begin
        ):  # said once more, though the prompt did
            text = text[len(self._begin) :].lstrip()
        at = text.find(self._end)
        if at >= 0:
            self._thinking, self._answering, self._trim = False, True, True
            thought, self._buffer = text[:at].rstrip(), text[at + len(self._end) :]
        else:
            kept = text if final else text[: len(text) - beginning_of(self._end, text)]
            if not self._begun and self._begin.startswith(kept) and not final:
                kept = ""
            thought = kept.rstrip()
            self._buffer = "" if final else text[len(thought) :]
        self._begun = self._begun or bool(thought)
        return [Reasoning(thought)] if thought else []

    def _answer(self) -> list[Piece]:
        if not self._answering:
            return []
        text, self._buffer = self._buffer, ""
        if self._trim:
            text = text.lstrip()
            self._trim = not text
        return self._rest.push(text) if text else []


class PlainReader:
    """Takes everything for content."""

    def push(self, text: str) -> list[Piece]:
        """The text."""
        return [Content(text)] if text else []

    def finish(self) -> list[Piece]:
        """Nothing."""
        return []
