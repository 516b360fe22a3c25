"""Reads the JSON object of one call while it is written."""

from __future__ import annotations

import json
from typing import Final

_NAMES: Final = ("name",)
_ARGUMENTS: Final = ("arguments", "parameters")
_BLANKS: Final = " \t\n\r"


class CallScanner:
    """One object ``{"name": ..., "arguments": {...}}``, its members in any order.

    Attributes:
        name: of the function, once its member is complete; or given, and then the object itself is
            the arguments.
        arguments: their text so far.
        raw: all text that was taken.
        done: the object is complete.
        broken: the text is no object.
    """

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.arguments = ""
        self.raw = ""
        self.done = self.broken = False
        self._whole = name is not None
        self._depth = 0
        self._in_text = self._escaped = False
        self._key: str | None = None
        self._token = ""  # the key or the value that is being read, at the object's own level

    def push(self, text: str) -> int:
        """Take characters, up to the object's end.

        Returns:
            How many were taken.
        """
        for i, char in enumerate(text):
            if self.done or self.broken:
                return i
            self.raw += char
            self._take(char)
        return len(text)

    def _take(self, char: str) -> None:
        if self._depth == 0 and char not in _BLANKS and char != "{":
            self.broken = True
            return
        if self._whole and (self._depth or char == "{"):
            self.arguments += char
        if self._in_text:
            self._inside_text(char)
        elif char == '"':
            self._in_text = True
            self._add(char)
        elif char in "{[":
            self._depth += 1
            if self._depth > 1:
                self._add(char)
        elif char in "}]":
            self._close(char)
        elif self._depth == 1 and char in ":,":
            self._separate(char)
        elif self._depth > 1 or char not in _BLANKS:
            self._add(char)

    def _inside_text(self, char: str) -> None:
        self._add(char)
        if self._escaped:
            self._escaped = False
        elif char == "\\":
            self._escaped = True
        elif char == '"':
            self._in_text = False

    def _close(self, char: str) -> None:
        if self._depth > 1:
            self._add(char)
        else:
            self._end_member()
            self.done = True
        self._depth -= 1

    def _separate(self, char: str) -> None:
        if char == ",":
            self._end_member()
        elif self._key is None:
            self._key = _text(self._token) or ""
            self._token = ""
        else:
            self.broken = True

    def _add(self, char: str) -> None:
        self._token += char
        # Arguments in a string of their own are known when it is complete.
        if not self._whole and self._key in _ARGUMENTS and not self._token.startswith('"'):
            self.arguments += char

    def _end_member(self) -> None:
        if not self._whole:
            if self._key in _NAMES:
                self.name = _text(self._token)
            elif self._key in _ARGUMENTS and self._token.startswith('"'):
                self.arguments = _text(self._token) or self._token
        self._key, self._token = None, ""


def _text(token: str) -> str | None:
    try:
        value = json.loads(token)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
