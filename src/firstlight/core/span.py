"""Where media lie in a prompt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range ``[start, end)`` of prompt positions filled by rows of one media item.

    An item whose rows are interleaved with text tokens (row separators, tile headers) has several
    spans; ``row`` is the item's first encoder row in this one.
    """

    item: int
    start: int
    end: int
    row: int = 0

    def __len__(self) -> int:
        return self.end - self.start

    def clip(self, start: int, end: int) -> Span | None:
        """The part of the span inside ``[start, end)``, with its encoder row moved along."""
        lo, hi = max(self.start, start), min(self.end, end)
        return Span(self.item, lo, hi, self.row + lo - self.start) if lo < hi else None
