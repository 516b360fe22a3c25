"""The media items of a prompt, as scheduler, encoder and caches know them."""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.core.span import Span
from firstlight.engine.prompt import Prompt
from firstlight.media import Artifact


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


def media_key(artifact: Artifact, rows: int) -> str:
    """The key of a picture that fills ``rows`` positions.

    The number of rows is part of it: two pictures that something took for one another stay two.
    """
    return f"{artifact.identity}/{rows}"
