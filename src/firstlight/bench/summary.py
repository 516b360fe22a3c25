"""Figures of many answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from firstlight.bench.answer import Answer

SHARES = (50, 90, 99)
"""Percentiles that are shown, beside the mean."""


def spread(seconds: Iterable[float | None]) -> dict[str, float] | None:
    """Mean, percentiles and largest in milliseconds; None of nothing.

    A percentile between two values lies on the line between them.

    Args:
        seconds: in any order; None counts as not there.
    """
    values = np.array([s for s in seconds if s is not None]) * 1e3
    if not values.size:
        return None
    found = {"mean": values.mean()}
    found |= {f"p{n}": np.percentile(values, n) for n in SHARES}
    return {name: round(float(v), 3) for name, v in (found | {"max": values.max()}).items()}


def latencies(answers: Sequence[Answer]) -> dict[str, dict[str, float] | None]:
    """The spread of each latency over the answers that came whole."""
    whole = [answer for answer in answers if answer.error is None]
    return {
        "ttft": spread(a.ttft for a in whole),
        "itl": spread(gap for a in whole for gap in a.gaps),
        "tpot": spread(a.tpot for a in whole),
        "e2e": spread(a.e2e for a in whole),
    }


def duration(answers: Sequence[Answer]) -> float:
    """Seconds from when the first request was due to when the last one ended."""
    return max(a.ended for a in answers) - min(a.due for a in answers)


def rates(answers: Sequence[Answer]) -> dict[str, float]:
    """What was answered in a second; failed requests take their time and add nothing."""
    whole = [answer for answer in answers if answer.error is None]
    seconds = max(duration(answers), 1e-9)
    per_s = {
        "requests_per_s": len(whole),
        "input_tokens_per_s": sum(a.prompt_tokens for a in whole),
        "output_tokens_per_s": sum(a.completion_tokens for a in whole),
    }
    found = {name: round(n / seconds, 3) for name, n in per_s.items()}
    in_flight = sum(a.ended - a.sent for a in answers) / seconds
    return found | {"seconds": round(seconds, 3), "mean_in_flight": round(in_flight, 2)}


def totals(answers: Sequence[Answer]) -> dict[str, int]:
    """Requests and their tokens; tokens are of those that were answered."""
    whole = [answer for answer in answers if answer.error is None]
    return {
        "requests": len(answers),
        "answered": len(whole),
        "failed": len(answers) - len(whole),
        "input_tokens": sum(a.prompt_tokens for a in whole),
        "cached_tokens": sum(a.cached_tokens for a in whole),
        "image_tokens": sum(a.image_tokens for a in whole),
        "output_tokens": sum(a.completion_tokens for a in whole),
        "answers_of_uncounted_tokens": sum(not a.counted for a in whole),
    }


def errors(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Each kind of error, how often it came, and what was said the first time."""
    counts = Counter(a.error for a in answers if a.error is not None)
    first = {a.error: a.detail for a in reversed(answers) if a.error is not None}
    return [{"error": kind, "requests": n, "said": first[kind]} for kind, n in counts.most_common()]


def goodput(answers: Sequence[Answer], limits: Mapping[str, float]) -> dict[str, Any] | None:
    """Answers within all limits, as a share of all requests and in a second; None without limits.

    Args:
        limits: milliseconds by name; ``itl`` is of the longest gap within an answer.
    """
    if not limits:
        return None
    good = sum(_is_good(answer, limits) for answer in answers)
    return {
        "limits_ms": dict(limits),
        "good": good,
        "share": round(good / len(answers), 4),
        "good_per_s": round(good / max(duration(answers), 1e-9), 3),
    }


def _is_good(answer: Answer, limits: Mapping[str, float]) -> bool:
    if answer.error is not None:
        return False
    worst = {
        "ttft": answer.ttft,
        "itl": max(answer.gaps, default=0.0),
        "tpot": answer.tpot or 0.0,
        "e2e": answer.e2e,
    }
    return all(worst[name] * 1e3 <= limit for name, limit in limits.items())
