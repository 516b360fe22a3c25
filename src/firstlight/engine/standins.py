"""Finds control tokens in texts and puts single characters in their places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

_PRIVATE: Final = range(0xF0000, 0x10FFFE)


class Finder:
    """Finds tokens in a text, of those that begin at one place the longest.

    Looks at the places where some token's first character stands; an alternation of all tokens
    takes a second to compile for tokenizers that have thousands.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        self._tokens = frozenset(filter(None, tokens))
        self._lengths = sorted({len(token) for token in self._tokens}, reverse=True)
        first = sorted({token[0] for token in self._tokens})
        self._first = re.compile("|".join(map(re.escape, first)) or "(?!)")

    def find(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of each token, from left to right, without overlaps."""
        at = 0
        while found := self._first.search(text, at):
            start = found.start()
            slices = (text[start : start + length] for length in self._lengths)
            token = next((piece for piece in slices if piece in self._tokens), "")
            at = start + max(len(token), 1)
            if token:
                yield start, at


class Pattern:
    """Finds control tokens in a text, and at its ends the pieces that a neighbour may complete."""

    def __init__(self, tokens: set[str]) -> None:
        self._finder = Finder(tokens)
        self._heads = {t[:k] for t in tokens for k in range(1, len(t))}
        self._tails = {t[-k:] for t in tokens for k in range(1, len(t))}
        self._longest = max(map(len, tokens), default=0)

    def replace(self, text: str, standin: Callable[[str], str]) -> str:
        """``text`` with ``standin(...)`` for each control token in it.

        A template may put two texts side by side, so that the end of one and the start of the next
        make a token. One character of such an end or start gets a stand-in too.
        """
        pieces, at = [], 0
        for start, end in self._finder.find(text):
            pieces += [text[at:start], standin(text[start:end])]
            at = end
        text = "".join([*pieces, text[at:]])
        size = len(text)
        lengths = range(1, min(self._longest, size + 1))
        places = {size - k for k in lengths if text[size - k :] in self._heads}
        places |= {k - 1 for k in lengths if text[:k] in self._tails}
        if not places:
            return text
        return "".join(standin(c) if i in places else c for i, c in enumerate(text))


class Standins:
    """The private-use characters of one request and the characters they stand for."""

    def __init__(self, taken: set[str]) -> None:
        self._free = (chr(code) for code in _PRIVATE if chr(code) not in taken)
        self._characters: dict[str, str] = {}
        self._texts: dict[int, str] = {}

    def replace(self, value: Any, pattern: Pattern) -> Any:
        """``value`` with stand-ins in all its strings, keys of mappings included."""
        if isinstance(value, str):
            return pattern.replace(value, self._standin)
        if isinstance(value, Mapping):
            return {self.replace(k, pattern): self.replace(v, pattern) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.replace(item, pattern) for item in value]
        return value

    def _standin(self, text: str) -> str:
        if text not in self._characters:
            self._characters[text] = character = next(self._free)
            self._texts[ord(character)] = text
        return self._characters[text]

    def found_in(self, text: str) -> bool:
        """Whether any stand-in occurs in ``text``."""
        return any(character in text for character in self._characters.values())

    def restore(self, text: str) -> str:
        """``text`` with the user's own characters again."""
        return text.translate(self._texts)


def private_characters(value: Any) -> set[str]:
    """The characters of the private-use planes in all strings of a value."""
    if isinstance(value, str):
        return set() if value.isascii() else {c for c in value if ord(c) in _PRIVATE}
    if isinstance(value, Mapping):
        value = [*value.keys(), *value.values()]
    if isinstance(value, list | tuple):
        return set().union(*map(private_characters, value))
    return set()
