"""A measured load as pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from firstlight.bench.answer import Answer
from firstlight.bench.plot import Chart, page
from firstlight.bench.run import Measured

_SHARES = tuple(range(101))
_SPANS = 60
"""Of the time axis."""


def draw(measured: Measured, caption: str) -> str:
    """An SVG document: how many requests waited how long, and what came when.

    Args:
        caption: a line below the charts.
    """
    whole = [answer for answer in measured.answers if answer.error is None]
    charts = [
        Chart(
            "Time to first token, and to the end",
            "ms",
            "% of answers within it",
            {
                "first token": _shares(a.ttft for a in whole),
                "end": _shares(a.e2e for a in whole),
            },
            dots=False,
        ),
        Chart(
            "Between two pieces of an answer (ITL)",
            "ms",
            "% of gaps within it",
            {"gap": _shares(gap for a in whole for gap in a.gaps)},
            dots=False,
        ),
        Chart(
            "Answers over time",
            "seconds from the start",
            "tokens/s",
            {"output": _over_time(whole, measured.start)},
            dots=False,
        ),
    ]
    return page(charts, caption)


def _shares(seconds: Iterable[float]) -> list[tuple[float, float]]:
    """Milliseconds within which each percentage lies."""
    values = np.array(list(seconds)) * 1e3
    if not values.size:
        return []
    at = np.percentile(values, _SHARES)
    return [(float(ms), float(share)) for ms, share in zip(at, _SHARES, strict=True)]


def _over_time(answers: Sequence[Answer], start: float) -> list[tuple[float, float]]:
    """Tokens a second, by when they came; a piece counts as its answer's tokens per piece."""
    came = [(at - start, a.completion_tokens / len(a.pieces)) for a in answers for at in a.pieces]
    if not came:
        return []
    width = max(max(at for at, _ in came) / _SPANS, 1e-3)
    tokens = [0.0] * (_SPANS + 1)
    for at, n in came:
        tokens[min(math.floor(at / width), _SPANS)] += n
    # What comes exactly at the end would stand in a span of no length.
    tokens[_SPANS - 1] += tokens.pop()
    return [((i + 0.5) * width, n / width) for i, n in enumerate(tokens)]
