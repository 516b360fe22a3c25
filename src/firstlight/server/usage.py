"""Token counts of an answer in OpenAI's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from firstlight.core.output import Completion
from firstlight.engine.aio import Stream


def usage_of(completions: Sequence[Completion]) -> dict[str, Any]:
    """Of the choices of one prompt: the prompt counts once, the answers all."""
    first = completions[0].usage
    return counts(
        first.prompt_tokens,
        sum(c.usage.completion_tokens for c in completions),
        image=first.image_tokens,
        cached=first.cached_tokens,
    )


def usage_so_far(stream: Stream, completion_tokens: int) -> dict[str, Any]:
    """While it is generated; what was cached is told at the end."""
    return counts(stream.prompt_tokens, completion_tokens, image=stream.image_tokens)


def total_usage(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of several prompts together."""
    details = [part["prompt_tokens_details"] for part in parts]
    return counts(
        sum(part["prompt_tokens"] for part in parts),
        sum(part["completion_tokens"] for part in parts),
        image=sum(d["image_tokens"] for d in details),
        cached=sum(d["cached_tokens"] for d in details),
    )


def counts(prompt: int, completion: int, *, image: int, cached: int = 0) -> dict[str, Any]:
    """The ``usage`` object. ``image`` and ``cached`` are part of ``prompt``."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {
            "cached_tokens": cached,
            "image_tokens": image,
            "text_tokens": prompt - image,
        },
    }
