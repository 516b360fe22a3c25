"""Tells what a model thinks from what it answers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final

from firstlight.engine.tools.pieces import Content, Parser, Piece, Reasoning, beginning_of

BEGIN: Final = "<think>"
END: Final = "</think>"


def reasoning_tokens(
    token_ids: Sequence[int], join: Callable[[Sequence[int]], str], *, thinking: bool
) -> int:
    """How many tokens of an answer are thoughts, their borders included.

    Args:
        join: the text of tokens, special ones included.
        thinking: the prompt has begun the thoughts.
    """
    text = join(token_ids)
    if not thinking and not text.lstrip().startswith(BEGIN):
        return 0
    if END not in text:
        return len(token_ids)
    sizes = range(len(token_ids) + 1)
    return bisect_left(sizes, True, key=lambda n: END in join(token_ids[:n]))


class ReasoningReader:
    """Splits the thoughts off, which come first, and gives the rest to another reader.

    Blanks at the borders of the thoughts belong to neither side.

    Args:
        rest: reads what follows the thoughts.
        thinking: the prompt has begun the thoughts.
    """

    def __init__(self, rest: Parser, *, thinking: bool) -> None:
        self._rest = rest
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
        if text.startswith(BEGIN):
            self._thinking, self._buffer = True, text[len(BEGIN) :]
        elif not BEGIN.startswith(text):
            self._answering = True

    def _think(self, *, final: bool) -> list[Piece]:
        text = self._buffer if self._begun else self._buffer.lstrip()
        if not self._begun and text.startswith(BEGIN):  # said once more, though the prompt did
            text = text[len(BEGIN) :].lstrip()
        at = text.find(END)
        if at >= 0:
            self._thinking, self._answering, self._trim = False, True, True
            thought, self._buffer = text[:at].rstrip(), text[at + len(END) :]
        else:
            kept = text if final else text[: len(text) - beginning_of(END, text)]
            if not self._begun and BEGIN.startswith(kept) and not final:
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
