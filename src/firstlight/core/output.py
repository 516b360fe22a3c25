"""What a caller gets back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from firstlight.core.timing import Timings


class FinishReason(StrEnum):
    """Why generation ended (OpenAI's words; ``abort``: the caller took the request out)."""

    STOP = "stop"
    LENGTH = "length"
    ERROR = "error"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request.

    ``image_tokens`` and ``cached_tokens`` are part of ``prompt_tokens``; the latter were found in
    the prefix cache and not computed again.
    """

    prompt_tokens: int
    completion_tokens: int
    image_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of a chosen token and of its most likely rivals ``(token id, logprob)``."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer to one request."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    logprobs: tuple[TokenLogprob, ...] | None = None
    error: str | None = None
