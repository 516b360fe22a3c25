"""What form the text of an answer has to have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from firstlight.core.json_schema import schema_text
from firstlight.core.text import check_text
from firstlight.errors import RequestError

_LONG: Final = re.compile(r"\d{16}|\d[eE]\+?\d")
_KINDS: Final = ("json", "json_object", "regex", "choice", "grammar")


@dataclass(frozen=True, slots=True)
class StructuredOutputs:
    """The form of an answer, one of several kinds; the whole text has it, from the first token on.

    Attributes:
        json: a JSON schema: a mapping, or its text; afterwards always text. Answers are JSON that
            is valid under it.
        json_object: any JSON object.
        regex: a regular expression (Rust's syntax, without look-around) that the answer matches.
        choice: the answer is one of these strings.
        grammar: a grammar in llguidance's form of Lark.
        where: what the form is called in error messages.
        schemas: JSON schemas that ``grammar`` is made of, each with its place in the request, so
            that an error can name it: pairs of place and text.
        thoughts: texts that begin and end what the model thinks before its answer. What lies
            between them is free; the form is that of what follows.
        thinking: the prompt has begun the thoughts.
    """

    json: object = None
    json_object: bool = False
    regex: str | None = None
    choice: tuple[str, ...] = ()
    grammar: str | None = None
    where: str = "structured_outputs"
    schemas: tuple[tuple[str, str], ...] = ()
    thoughts: tuple[str, str] | None = None
    thinking: bool = False

    def __post_init__(self) -> None:
        given = [n for n in _KINDS if getattr(self, n) not in (None, False, (), [])]
        if self.json is False:
            given.append("json")
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise RequestError(f"{self.where} must have one of {', '.join(_KINDS)}; it has {found}")
        if self.json is not None:
            object.__setattr__(self, "json", schema_text(self.json, self._place("json")))
        if not isinstance(self.choice, list | tuple):
            raise RequestError(f"{self._place('choice')} = {self.choice!r}; accepted: a list")
        object.__setattr__(self, "choice", tuple(self.choice))
        self._check_texts()
        self._check_grammar()

    def _check_texts(self) -> None:
        if not isinstance(self.json_object, bool):
            raise RequestError(f"{self._place('json_object')} must be true or false")
        texts = {"regex": self.regex, "grammar": self.grammar}
        texts |= {f"choice[{i}]": text for i, text in enumerate(self.choice)}
        for name, text in texts.items():
            if text is None:
                continue
            if not isinstance(text, str) or not text:
                place = self._place(name)
                raise RequestError(f"{place} = {text!r}; accepted: a string that is not empty")
            check_text(text, self._place(name))

    def _check_grammar(self) -> None:
        """A grammar may hold schemas; of those, numbers as in :func:`schema_text`."""
        if self.grammar is not None and not self.schemas and _LONG.search(self.grammar):
            raise RequestError(f"{self._place('grammar')} holds a number of more than 15 digits")

    def _place(self, name: str) -> str:
        return f"{self.where}.{name}" if self.where == "structured_outputs" else self.where
