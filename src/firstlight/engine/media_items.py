"""The media items of a prompt, as scheduler, encoder and caches know them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from firstlight.core.span import Span
from firstlight.engine.prompt import Prompt
from firstlight.media import Artifact
from firstlight.memory.prefix_key import MediaKey


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One picture of one prompt.

    Attributes:
        index: its place among the prompt's pictures.
        key: what its rows are cached by; equal pictures of any requests have equal keys.
        rows: encoder rows that it fills.
        spans: the positions that it fills, ascending; at least one span.
    """

    index: int
    key: str
    rows: int
    spans: tuple[Span, ...]

    @property
    def end(self) -> int:
        """The position behind its last row."""
        return self.spans[-1].end

    def overlaps(self, start: int, end: int) -> bool:
        """Whether one of its rows lies in ``[start, end)``."""
        return any(span.start < end and start < span.end for span in self.spans)


def media_items(prompt: Prompt) -> tuple[MediaItem, ...]:
    """The items of a prompt, one per artifact, in prompt order."""
    spans: list[list[Span]] = [[] for _ in prompt.artifacts]
    for span in prompt.spans:
        spans[span.item].append(span)
    items = []
    for index, (artifact, own) in enumerate(zip(prompt.artifacts, spans, strict=True)):
        rows = sum(len(span) for span in own)
        items.append(MediaItem(index, media_key(artifact, rows), rows, tuple(own)))
    return tuple(items)


def prefix_media(
    items: Sequence[MediaItem], blocks: Sequence[tuple[int, int]] = ()
) -> list[MediaKey]:
    """The items as the prefix cache knows them.

    Rows of one block see each other, so the keys and values of each depend on all of it: an item
    that shares a block with others is another item than the same one alone or beside different
    ones.

    Args:
        blocks: half-open ranges of positions that attend to each other both ways; a span lies in
            one or in none.
    """
    together: dict[tuple[int, int], list[MediaItem]] = {}
    for item in items:
        for block in {block for span in item.spans if (block := _block(span, blocks))}:
            together.setdefault(block, []).append(item)
    beside: dict[int, list[str]] = {}
    for members in together.values():
        for at, item in enumerate(members) if len(members) > 1 else ():
            others = ",".join(member.key for member in members)
            beside.setdefault(item.index, []).append(f" at {at} of [{others}]")
    return [MediaKey(i.key + "".join(beside.get(i.index, ())), i.spans) for i in items]


def _block(span: Span, blocks: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    at = bisect_right(blocks, span.start, key=lambda block: block[0]) - 1
    return blocks[at] if at >= 0 and span.start < blocks[at][1] else None


def media_key(artifact: Artifact, rows: int) -> str:
    """The key of a picture that fills ``rows`` positions.

    The number of rows is part of it: two pictures that something took for one another stay two.
    """
    return f"{artifact.identity}/{rows}"
