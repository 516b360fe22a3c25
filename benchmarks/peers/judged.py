"""The rows that are measured, and what each is to reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from benchmarks.peers.engines import Group
from benchmarks.peers.workers.loop import Answer


class Measure(StrEnum):
    """What is taken of an answer."""

    TTFT = "s to the first token"
    STEP_RATE = "tok/s after the first"
    TOTAL_RATE = "tok/s in all"

    @property
    def more_is_better(self) -> bool:
        """Whether a larger number is the better one."""
        return self is not Measure.TTFT

    def of(self, answer: Answer) -> float:
        """Seconds, or tokens a second."""
        if self is Measure.TTFT:
            return answer.ttft_s
        made = sum(len(ids) for ids in answer.ids)
        if self is Measure.TOTAL_RATE:
            return made / answer.total_s
        return (made - 1) / (answer.total_s - answer.ttft_s)


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One figure of each engine.

    Attributes:
        least, aim: what ours over theirs is to be, at most for seconds and at least for rates;
            None for a row that is information.
        against: the engine that is meant; None is the best of the others.
        step_of: the row of decode steps whose own step it is judged by, instead of an engine.
    """

    title: str
    measure: Measure
    least: float | None = None
    aim: float | None = None
    against: str | None = None
    step_of: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """Requests that an engine is handed together, and which rows their answer gives.

    Attributes:
        tokens: of each prompt's text.
        requests: how many.
        picture: whether each prompt begins with the turn's picture.
        question: calls of a turn with equal questions have equal prompts.
    """

    tokens: int
    max_tokens: int
    rows: tuple[str, ...] = ()
    requests: int = 1
    picture: bool = False
    question: int = 0


@dataclass(frozen=True, slots=True)
class Turn:
    """What an engine does before it is the next one's turn."""

    group: Group
    calls: tuple[Call, ...]


ROWS: Final[Mapping[str, JudgedRow]] = MappingProxyType(
    {
        "ttft-128": JudgedRow("TTFT, text of 128 tokens", Measure.TTFT, 1.0, 0.8),
        "ttft-512": JudgedRow("TTFT, text of 512 tokens", Measure.TTFT, 1.0, 0.8),
        "ttft-2048": JudgedRow("TTFT, text of 2,048 tokens", Measure.TTFT, 1.0, 0.8),
        "decode": JudgedRow(
            "decode, one request", Measure.STEP_RATE, 1.0, 1.2, against="openvino-genai"
        ),
        "eight": JudgedRow("8 requests together", Measure.TOTAL_RATE, 1.3, 2.0),
        "again-text": JudgedRow(
            "identical text request again", Measure.TTFT, 1.0, step_of="decode"
        ),
        "decode-4bit": JudgedRow(
            "decode, one request, 4-bit", Measure.STEP_RATE, 1.0, 1.3, against="llama.cpp"
        ),
        "ttft-4bit": JudgedRow("TTFT, text of 128 tokens, 4-bit", Measure.TTFT),
        "image": JudgedRow("first image and 32 tokens, TTFT", Measure.TTFT, 1.0, 0.7),
        "decode-image": JudgedRow("decode after an image", Measure.STEP_RATE),
        "other-question": JudgedRow("same image, other question, TTFT", Measure.TTFT, 0.5, 0.2),
        "again-image": JudgedRow(
            "identical request with image again", Measure.TTFT, 1.0, step_of="decode-image"
        ),
    }
)
"""By key. What is measured once and not in turns is in :mod:`benchmarks.peers.resources`."""

TURNS: Final[Mapping[str, Turn]] = MappingProxyType(
    {
        "text-128": Turn(
            Group.TEXT,
            (Call(128, 65, ("ttft-128", "decode")), Call(128, 2, ("again-text",))),
        ),
        "text-512": Turn(Group.TEXT, (Call(512, 2, ("ttft-512",)),)),
        "text-2048": Turn(Group.TEXT, (Call(2048, 2, ("ttft-2048",)),)),
        "eight": Turn(Group.TEXT, (Call(64, 64, ("eight",), requests=8),)),
        "text-4bit": Turn(Group.FOUR_BIT, (Call(128, 65, ("ttft-4bit", "decode-4bit")),)),
        "image": Turn(
            Group.VISION,
            (
                Call(32, 32, ("image", "decode-image"), picture=True),
                Call(32, 2, ("other-question",), picture=True, question=1),
                Call(32, 2, ("again-image",), picture=True),
            ),
        ),
    }
)
"""By name, in the order in which a round takes them."""

CONTEXT: Final = 2304
"""Longest prompt and answer: what every engine is told to expect."""
