"""Token positions of a prompt, computed on the host from spans and grids.

transformers computes M-RoPE positions on the device from a token-type mask and keeps the decode
offset on the module, where the next request overwrites it. Here both are plain values that the
request carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstlight.errors import RequestError


@dataclass(frozen=True, slots=True)
class Positions:
    """Positions of one request.

    Attributes:
        prompt: int64 ``[R, n]``, one column per prompt token.
        next: position of the first generated token, equal on all R rows; later tokens count on.
    """

    prompt: NDArray[np.int64]
    next: int


def linear_positions(n_tokens: int) -> Positions:
    """0, 1, 2, ... on one row."""
    return Positions(np.arange(n_tokens, dtype=np.int64)[None], n_tokens)


def mrope_positions(
    n_tokens: int, blocks: Sequence[tuple[int, int, tuple[int, int, int]]]
) -> Positions:
    """Temporal, height and width positions (M-RoPE) of a prompt with images.

    Text counts on equally on all three rows. A block of ``t * h * w`` media rows spreads its grid
    over the rows from the position reached, and text goes on ``max(h, w)`` later.

    Args:
        blocks: ``(start, end, (t, h, w))`` per media item in prompt order: its half-open range of
            prompt positions and its grid after spatial merging.

    Raises:
        RequestError: a block overlaps its predecessor, leaves the prompt, or does not fit its grid.
    """
    out = np.empty((3, n_tokens), dtype=np.int64)
    cursor = reached = 0
    for start, end, (t, h, w) in blocks:
        if start < cursor or end > n_tokens or end - start != t * h * w:
            raise RequestError(
                f"a grid of {t} x {h} x {w} does not fit the prompt range [{start}, {end}) "
                f"after position {cursor} of {n_tokens}"
            )
        out[:, cursor:start] = np.arange(reached, reached + start - cursor)
        reached += start - cursor
        out[:, start:end] = np.indices((t, h, w), dtype=np.int64).reshape(3, -1) + reached
        reached += max(h, w)
        cursor = end
    out[:, cursor:] = np.arange(reached, reached + n_tokens - cursor)
    return Positions(out, int(out.max()) + 1 if n_tokens else 0)
