"""Memory that comes and goes between replays, and the orders in which buckets follow each other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch

ALL_PAIRS = 8
"""Up to so many buckets every one is replayed after every other, itself included."""

_SIZES = tuple(1 << n for n in range(8, 23, 2))  # bytes of the blocks: 256 B to 4 MiB
_EACH = 4


def churn(device: torch.device) -> None:
    """Take blocks of many sizes, fill them with ones and let them go.

    Memory that a graph addresses and nobody holds gets into other hands here, once garbage was
    collected. Bytes of ones are NaN as floats of any width, and no index.
    """
    blocks = [
        torch.full((n,), 0xFF, dtype=torch.uint8, device=device)
        for n in _SIZES
        for _ in range(_EACH)
    ]
    # Every other one goes first, so that what is free lies in holes.
    del blocks[::2]


def replay_order(buckets: Sequence[int], seed: int) -> list[int]:
    """A shuffled order in which each bucket follows every bucket; of many, each comes twice."""
    draw = random.Random(seed)
    if len(buckets) > ALL_PAIRS:
        order = [*buckets, *buckets]
        draw.shuffle(order)
        return order
    # A walk that uses every edge of the complete graph once (Hierholzer).
    left = {bucket: draw.sample(list(buckets), len(buckets)) for bucket in buckets}
    stack, walk = list(buckets[:1]), list[int]()
    while stack:
        if left[stack[-1]]:
            stack.append(left[stack[-1]].pop())
        else:
            walk.append(stack.pop())
    return walk[::-1]
