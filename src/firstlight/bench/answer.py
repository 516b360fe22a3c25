"""What became of one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """A request's way; times are readings of one clock, in seconds.

    Attributes:
        due: when it was to be sent; latencies count from here. A request that waits in the client,
            as the server is slow, has not come later: who leaves that out measures only the
            requests that a slow server let through.
        sent: when it was.
        pieces: when each chunk with text came.
        ended: when it was over, well or not.
        max_tokens: it asked for.
        images: it brought.
        error: what went wrong, in a word or two that stay the same for errors of a kind; None of
            a whole answer.
        detail: what the server or the network said of the error.
        prompt_tokens, cached_tokens, image_tokens, completion_tokens: as the server counts them;
            ``completion_tokens`` is the number of pieces where it does not.
        counted: whether the server did.
        timings: firstlight's own, in milliseconds; empty from others.
    """

    due: float
    sent: float
    ended: float
    max_tokens: int
    images: int = 0
    pieces: tuple[float, ...] = ()
    error: str | None = None
    detail: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    image_tokens: int = 0
    completion_tokens: int = 0
    counted: bool = True
    finish_reason: str = ""
    timings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ttft(self) -> float:
        """Seconds to the first text; of an answer without text, to its end."""
        return (self.pieces[0] if self.pieces else self.ended) - self.due

    @property
    def gaps(self) -> list[float]:
        """Seconds between each two pieces that follow one another."""
        return [b - a for a, b in pairwise(self.pieces)]

    @property
    def tpot(self) -> float | None:
        """Seconds a token from the first text to the end; None of an answer of one token."""
        if self.completion_tokens < 2 or not self.pieces:
            return None
        return (self.ended - self.pieces[0]) / (self.completion_tokens - 1)

    @property
    def e2e(self) -> float:
        """Seconds to its end."""
        return self.ended - self.due

    def describe(self, start: float) -> dict[str, Any]:
        """JSON-ready, in milliseconds.

        Args:
            start: the load's.
        """
        about: dict[str, Any] = {
            "due_ms": _ms(self.due - start),
            "late_ms": _ms(self.sent - self.due),
            "e2e_ms": _ms(self.e2e),
            "max_tokens": self.max_tokens,
            "images": self.images,
        }
        if self.error is not None:
            return about | {"error": self.error, "detail": self.detail}
        tpot = self.tpot
        return about | {
            "ttft_ms": _ms(self.ttft),
            "tpot_ms": None if tpot is None else _ms(tpot),
            "itl_ms": [_ms(gap) for gap in self.gaps],
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "image_tokens": self.image_tokens,
            "completion_tokens": self.completion_tokens,
            "finish_reason": self.finish_reason,
        }


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 3)
