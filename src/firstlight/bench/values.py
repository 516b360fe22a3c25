"""Values of the load's settings that are more than a number: spans of tokens, sizes, limits."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

OBJECTIVES = ("ttft", "itl", "tpot", "e2e")
"""Latencies that a limit may be set for."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole numbers from ``low`` to ``high``, both included, each as likely."""

    low: int
    high: int

    def draw(self, chance: random.Random) -> int:
        """One of them."""
        return chance.randint(self.low, self.high)

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}:{self.high}"


def parse_span(value: object) -> object:
    """``128`` or ``'100:200'`` as a span; the rest is left for the check."""
    if isinstance(value, int) and not isinstance(value, bool):
        return Span(value, value)
    if isinstance(value, str):
        ends = [end.strip() for end in value.split(":")]
        if len(ends) <= 2 and all(end.isascii() and end.isdecimal() for end in ends):
            return Span(int(ends[0]), int(ends[-1]))
    return value


def is_span(value: object) -> bool:
    """Whether it is a span that begins at 1 or above and does not end before."""
    return isinstance(value, Span) and 1 <= value.low <= value.high


def parse_sizes(value: object) -> object:
    """``'448x448,640x480'`` as pairs of width and height; the rest is left for the check."""
    if not isinstance(value, str):
        return value
    sizes = []
    for text in value.split(","):
        sides = [side.strip() for side in text.lower().split("x")]
        if len(sides) != 2 or not all(side.isascii() and side.isdecimal() for side in sides):
            return value
        sizes.append((int(sides[0]), int(sides[1])))
    return tuple(sizes)


def is_sizes(value: object) -> bool:
    """Whether these are sizes in pixels, each side from 1 to 16384."""
    return (
        isinstance(value, tuple)
        and bool(value)
        and all(isinstance(size, tuple) and all(1 <= side <= 16384 for side in size)
                for size in value)
    )  # fmt: skip


def parse_limits(value: object) -> object:
    """``'ttft:200,itl:30'`` as milliseconds by name; the rest is left for the check."""
    if not isinstance(value, str):
        return value
    limits: dict[str, float] = {}
    for text in filter(None, (part.strip() for part in value.split(","))):
        name, _, number = text.partition(":")
        try:
            limits[name.strip()] = float(number)
        except ValueError:
            return value
    return limits


def is_limits(value: object) -> bool:
    """Whether every name is one of :data:`OBJECTIVES` and every limit is above 0."""
    return isinstance(value, Mapping) and all(
        name in OBJECTIVES and 0 < limit < float("inf") for name, limit in value.items()
    )
