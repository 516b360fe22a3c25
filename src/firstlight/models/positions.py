"""Token positions of a prompt, computed on the host from spans and grids.

transformers computes M-RoPE positions on the device from a token-type mask and keeps the decode
offset on the module, where the next request overwrites it. Here both are plain values that the
request carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

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


class GridBlock(NamedTuple):
    """An unbroken run of media rows in a prompt.

    Attributes:
        start, end: half-open range of prompt positions.
        grid: rows in time, height and width; their product is ``end - start``.
        interval: positions from one grid row in time to the next; fractions are cut off.
    """

    start: int
    end: int
    grid: tuple[int, int, int]
    interval: float = 1.0


def linear_positions(n_tokens: int) -> Positions:
    """0, 1, 2, ... on one row."""
    return Positions(np.arange(n_tokens, dtype=np.int64)[None], n_tokens)


def mrope_positions(n_tokens: int, blocks: Sequence[GridBlock]) -> Positions:
    """Temporal, height and width positions (M-RoPE) of a prompt with images and videos.

    Text counts on equally on all three rows. A block of ``t * h * w`` media rows spreads its grid
    over the rows from the position reached, and text goes on ``max(h, w)`` later, wherever the
    temporal positions have come to. So does the first generated token: a later turn's prompt, in
    which the answer is text, gives it the same position. (``rope_deltas`` of transformers lie
    behind all temporal positions; its ``generate`` counts on from the last token, as here.)

    Args:
        blocks: in prompt order; grids after spatial merging.

    Raises:
        RequestError: a block overlaps its predecessor, leaves the prompt, or does not fit its grid.
    """
    out = np.empty((3, n_tokens), dtype=np.int64)
    cursor = reached = 0
    for start, end, (t, h, w), interval in blocks:
        if start < cursor or end > n_tokens or end - start != t * h * w:
            raise RequestError(
                f"a grid of {t} x {h} x {w} does not fit the prompt range [{start}, {end}) "
                f"after position {cursor} of {n_tokens}"
            )
        out[:, cursor:start] = np.arange(reached, reached + start - cursor)
        reached += start - cursor
        grid = np.indices((t, h, w), dtype=np.int64).reshape(3, -1)
        if interval != 1:
            # In float32, as transformers multiplies: the fraction that is cut off depends on it.
            grid[0] = grid[0].astype(np.float32) * np.float32(interval)
        out[:, start:end] = grid + reached
        reached += max(h, w)
        cursor = end
    following = reached + n_tokens - cursor
    out[:, cursor:] = np.arange(reached, following)
    return Positions(out, following)
