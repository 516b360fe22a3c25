"""Answers in one form, whichever endpoint they came from and whether whole or in pieces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.load.asked import RESPONSES

Value = dict[str, Any]
Entry = tuple[str, float]
"""A token's text and its log probability."""


class CutError(Exception):
    """A stream ended as if it were whole, and is not: what no client could notice."""


class ToldError(Exception):
    """A stream ended with an event that says why.

    Attributes:
        error: OpenAI's error object.
    """

    def __init__(self, error: Value) -> None:
        super().__init__(str(error.get("message")))
        self.error = error


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer to a request.

    Attributes:
        logprobs: of each token, and of its rivals; empty if none were asked for.
    """

    text: str
    finish: str
    logprobs: tuple[tuple[Entry, tuple[Entry, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that is the same each time a request is answered.

    Attributes:
        tokens: of the prompt and of the answers; None where a stream did not say.
    """

    choices: tuple[Choice, ...]
    tokens: tuple[int, int] | None


def whole_answer(path: str, value: Value) -> Answer:
    """An answer that came in one piece."""
    if path == RESPONSES:
        return _response(value)
    choices = sorted(value["choices"], key=lambda choice: int(choice["index"]))
    return Answer(tuple(map(_choice, choices)), _tokens(value["usage"]))


def _choice(value: Value) -> Choice:
    text = value["message"]["content"] if "message" in value else value["text"]
    return Choice(text or "", value["finish_reason"], tuple(_logprobs(value["logprobs"])))


def _response(value: Value) -> Answer:
    parts = [
        part["text"]
        for item in value["output"]
        if item["type"] == "message"
        for part in item["content"]
    ]
    used = value["usage"]
    tokens = used["input_tokens"], used["output_tokens"]
    return Answer((Choice("".join(parts), value["status"]),), tokens)


def _tokens(usage: Value | None) -> tuple[int, int] | None:
    return None if usage is None else (usage["prompt_tokens"], usage["completion_tokens"])


def _logprobs(value: Value | None) -> Iterator[tuple[Entry, tuple[Entry, ...]]]:
    if value is None:
        return
    if "content" in value:
        for entry in value["content"]:
            rivals = tuple((r["token"], r["logprob"]) for r in entry["top_logprobs"])
            yield (entry["token"], entry["logprob"]), rivals
        return
    for i, token in enumerate(value["tokens"]):
        rivals = tuple((value["top_logprobs"] or [{}] * (i + 1))[i].items())
        yield (token, value["token_logprobs"][i]), rivals


@dataclass(slots=True)
class _Pieces:
    """What came of one choice so far."""

    text: str = ""
    finish: str | None = None
    logprobs: list[tuple[Entry, tuple[Entry, ...]]] = field(default_factory=list)

    def take(self, value: Value) -> None:
        """One chunk's choice."""
        if self.finish is not None:
            raise CutError(f"a piece behind the choice's finish_reason: {value}")
        self.text += value["delta"].get("content") or "" if "delta" in value else value["text"]
        self.logprobs += _logprobs(value["logprobs"])
        self.finish = value["finish_reason"]


class StreamedAnswer:
    """Puts a stream's events together, and knows whether they are all."""

    def __init__(self, path: str, choices: int) -> None:
        self._path = path
        self._pieces = [_Pieces() for _ in range(choices)]
        self._tokens: tuple[int, int] | None = None
        self._response: Value | None = None
        self._text = ""
        self._number = 0
        self._done = False

    def take(self, frame: str) -> None:
        """The next event.

        Raises:
            CutError: it cannot come here.
            ToldError: it says that the answer is lost.
        """
        if self._done:
            raise CutError(f"an event behind the last one: {frame[:200]}")
        data = frame[frame.index("data: ") + len("data: ") :]
        if data == "[DONE]":
            self._done = True
            return
        value = json.loads(data)
        if "error" in value and value.get("type", "error") == "error":
            raise ToldError(value["error"])
        if self._path == RESPONSES:
            self._take_event(value)
            return
        for choice in value["choices"]:
            self._pieces[choice["index"]].take(choice)
        self._tokens = _tokens(value.get("usage")) or self._tokens

    def _take_event(self, value: Value) -> None:
        if value["sequence_number"] != self._number:
            raise CutError(f"event {self._number} is missing")
        self._number += 1
        if value["type"] == "response.output_text.delta":
            self._text += value["delta"]
        elif value["type"] in ("response.completed", "response.incomplete"):
            self._response = value["response"]
            self._done = True

    def answer(self) -> Answer:
        """The whole of it, after the last event.

        Raises:
            CutError: something is missing.
        """
        if not self._done:
            raise CutError("the stream ended without its last event")
        if self._path == RESPONSES:
            assert self._response is not None
            answer = _response(self._response)
            if answer.choices[0].text != self._text:
                raise CutError("the pieces of the text are not the text")
            return answer
        choices = []
        for i, pieces in enumerate(self._pieces):
            if pieces.finish is None:
                raise CutError(f"choice {i} has no finish_reason")
            choices.append(Choice(pieces.text, pieces.finish, tuple(pieces.logprobs)))
        return Answer(tuple(choices), self._tokens)
