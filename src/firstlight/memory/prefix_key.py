"""What a page of a prompt contains, as a key of the prefix cache.

Token ids alone would not do: every picture fills its positions with the same placeholder id. A
media position is therefore known by its item's full digest and the row of the item that fills it;
the placeholder id has no part in it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from firstlight.core.span import Span

# A token id for each text position and, for each run of media positions, the item's identity, the
# run's first row and its length: no two different pages have equal keys.
PageKey: TypeAlias = tuple[int | tuple[str, int, int], ...]

# What stands at each position: a token id and no identity, or a row of the item of that identity.
# Such tuples have an order.
Contents: TypeAlias = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class MediaKey:
    """One media item of a prompt for the cache.

    Attributes:
        identity: full digest of the item and of all that decides its rows; equal identities mean
            equal rows.
        spans: the positions it fills, in order. Text between two of its spans counts as inside.
    """

    identity: str
    spans: tuple[Span, ...]


class PrefixKey:
    """The keys of a request's full pages, in order, growing as tokens are generated.

    Args:
        ids: token ids from position 0; the list is kept, not copied.
        media: the items of the prompt, each with its spans.
        page_size: tokens a page.

    Raises:
        ValueError: spans overlap, are empty, or reach beyond the ids.
    """

    def __init__(self, ids: list[int], media: Sequence[MediaKey], page_size: int) -> None:
        self.page_size = page_size
        self._ids = ids
        self._runs = _runs(media, len(ids))
        self._ends = [end for _, end, _, _ in self._runs]
        self._hulls = _hulls(media)
        self._hull_starts = [start for start, _ in self._hulls]

    @property
    def length(self) -> int:
        """Tokens known so far."""
        return len(self._ids)

    @property
    def n_pages(self) -> int:
        """Full pages of what is known so far."""
        return len(self._ids) // self.page_size

    def extend(self, ids: Iterable[int]) -> None:
        """Append generated tokens (to the list given at the start, too)."""
        self._ids.extend(ids)

    def page(self, index: int) -> PageKey:
        """The key of the full page ``index``.

        Raises:
            IndexError: that page is not full yet.
        """
        if not 0 <= index < self.n_pages:
            raise IndexError(f"page {index} of {self.n_pages} full pages")
        start = index * self.page_size
        return self.between(start, start + self.page_size)

    def between(self, start: int, end: int) -> PageKey:
        """The key of the known positions ``[start, end)``, which lie in one page."""
        at = bisect_right(self._ends, start)
        if at == len(self._runs) or self._runs[at][0] >= end:
            return tuple(self._ids[start:end])
        return self._mixed(at, start, end)

    def _mixed(self, at: int, start: int, end: int) -> PageKey:
        """The key of ``[start, end)``, the first media run in which is number ``at``."""
        parts: list[int | tuple[str, int, int]] = []
        position = start
        for first, last, row, identity in self._runs[at:]:
            if first >= end:
                break
            lo, hi = max(first, start), min(last, end)
            parts += self._ids[position:lo]
            parts.append((identity, row + lo - first, hi - lo))
            position = hi
        parts += self._ids[position:end]
        return tuple(parts)

    def ends_inside(self, position: int) -> bool:
        """Whether a prefix of ``position`` tokens would cut an item in two.

        An item reaches from the start of its first span to the end of its last.
        """
        return self.last_border(position) != position

    def last_border(self, position: int) -> int:
        """The longest prefix of at most ``position`` tokens that cuts no item, in tokens."""
        at = bisect_right(self._hull_starts, position) - 1
        if at >= 0:
            start, end = self._hulls[at]
            if start < position < end:
                return start
        return position


def contents_of(key: PageKey) -> Contents:
    """A key position by position."""
    found: list[tuple[int, str]] = []
    for part in key:
        if isinstance(part, tuple):
            identity, row, n = part
            found += [(row + i, identity) for i in range(n)]
        else:
            found.append((part, ""))
    return tuple(found)


def common_length(one: Contents, other: Contents) -> int:
    """Positions from the first on that have the same contents in both."""
    n = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        n += 1
    return n


def _runs(media: Sequence[MediaKey], length: int) -> list[tuple[int, int, int, str]]:
    """All spans in order of position, as (start, end, first row, identity)."""
    runs = sorted(
        (span.start, span.end, span.row, item.identity) for item in media for span in item.spans
    )
    position = 0
    for start, end, _, _ in runs:
        if not position <= start < end <= length:
            raise ValueError(
                f"media span [{start}, {end}) is empty, overlaps the one before it, or reaches "
                f"beyond the {length} known ids"
            )
        position = end
    return runs


def _hulls(media: Sequence[MediaKey]) -> list[tuple[int, int]]:
    """From each item's first position to its last; items that interleave are cut by nobody."""
    hulls: list[tuple[int, int]] = []
    for start, end in sorted(
        (min(s.start for s in item.spans), max(s.end for s in item.spans))
        for item in media
        if item.spans
    ):
        if hulls and start < hulls[-1][1]:
            hulls[-1] = (hulls[-1][0], max(hulls[-1][1], end))
        else:
            hulls.append((start, end))
    return hulls
