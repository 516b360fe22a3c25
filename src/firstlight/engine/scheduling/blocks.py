"""Where a chunk may end: never inside a block that attends in both directions.

Blocks are half-open ranges of positions, ascending and apart.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

Blocks = Sequence[tuple[int, int]]


def block_around(blocks: Blocks, position: int) -> tuple[int, int] | None:
    """The block that a chunk edge at ``position`` would cut in two, if there is one."""
    index = bisect_left(blocks, (position,)) - 1  # the last block that starts before it
    if index >= 0 and position < blocks[index][1]:
        return blocks[index]
    return None


def cut(blocks: Blocks, start: int, end: int) -> int:
    """The last end up to ``end`` for a chunk from ``start``; ``start`` itself if there is none.

    ``start`` must not lie inside a block.
    """
    block = block_around(blocks, end) if blocks else None
    return end if block is None else max(block[0], start)


def least_end(blocks: Blocks, start: int) -> int:
    """Where the shortest chunk from ``start`` ends: behind a block that starts there."""
    index = bisect_left(blocks, (start,))
    if index < len(blocks) and blocks[index][0] == start:
        return blocks[index][1]
    return start + 1


def shrink(blocks: Blocks, start: int, end: int, page_size: int) -> int:
    """A shorter chunk that touches about half as many pages, or ``start`` if there is none."""
    first, last = start // page_size, (end - 1) // page_size
    if first == last:
        return start
    shorter = cut(blocks, start, (first + (last - first) // 2 + 1) * page_size)
    if shorter > start:
        return shorter
    least = least_end(blocks, start)
    return least if least < end else start


def longest(blocks: Blocks) -> int:
    """Positions of the longest block; 0 without any."""
    return max((end - start for start, end in blocks), default=0)


def check_blocks(blocks: Blocks, prompt_length: int) -> None:
    """Refuse blocks that no chunk could be laid around.

    Raises:
        ValueError: they are empty, out of order, overlap, or leave the prompt.
    """
    at = 0
    for start, end in blocks:
        if not at <= start < end <= prompt_length:
            raise ValueError(
                f"blocks {list(blocks)} of a prompt of {prompt_length} tokens: each must be a "
                "half-open range inside the prompt, behind the one before it"
            )
        at = end
