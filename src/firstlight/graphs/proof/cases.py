"""Which batches a bucket is proven with: legal ones, at the edges of what it will serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from firstlight.core.reason import Phase
from firstlight.graphs.proof.report import ProofLevel

GUARDS = 2
"""Units lent but given to no request: first and last of the loan, so also the sink's neighbour.
A memory of very few units goes without."""


LARGE = 128
"""Rows from which attention, not launching operations, decides what a run costs."""


class Media(Enum):
    """Which rows carry data in the segments after the first, and in the planes."""

    ALL = "all"
    CUT = "cut"  # rows of two spans that chunk borders cut, at the batch's start and at its end
    NONE = "none"  # a text-only batch


@dataclass(frozen=True, slots=True)
class Case:
    """One batch.

    Attributes:
        requests: (start, end): positions ``[start, end)`` are computed, ``[0, start)`` are cached.
        unequal: position rows differ from each other, as for rows of a picture.
        scattered: a request's units are in no order.
    """

    name: str
    requests: tuple[tuple[int, int], ...]
    media: Media = Media.ALL
    unequal: bool = False
    scattered: bool = False

    @property
    def tokens(self) -> int:
        """Live rows."""
        return sum(end - start for start, end in self.requests)


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch of one bucket may be.

    Attributes:
        previous: the next smaller bucket; batches up to it go there. 0 if there is none.
        max_requests, max_context, unit_tokens, free_units: of the slots and of the memory.
    """

    phase: Phase
    bucket: int
    previous: int
    max_requests: int
    max_context: int
    unit_tokens: int
    free_units: int

    def units(self, requests: Sequence[tuple[int, int]]) -> int:
        """Units that hold the requests."""
        return sum(-(-end // self.unit_tokens) for _, end in requests)

    def allow(self, requests: Sequence[tuple[int, int]]) -> bool:
        """Whether this batch is legal and fits the memory that is free."""
        return (
            0 < len(requests) <= self.max_requests
            and all(0 <= start < end <= self.max_context for start, end in requests)
            and 0 < sum(end - start for start, end in requests) <= self.bucket
            and self.units(requests) + self.guards <= self.free_units
        )

    @property
    def guards(self) -> int:
        """Units to lend beside those of the requests."""
        return GUARDS if self.free_units > 2 * GUARDS else 0


def plan_cases(limits: Limits, level: ProofLevel) -> list[Case]:
    """The batches of one bucket; empty if no batch of it fits the memory."""
    found: dict[tuple[object, ...], Case] = {}
    for case in _candidates(limits, level):
        if limits.allow(case.requests):
            key = (case.requests, case.media, case.unequal, case.scattered)
            found.setdefault(key, case)
    return list(found.values())


def mixed_case(limits: Limits) -> Case | None:
    """The one batch that holds most at once: two requests or more, one with a cached prefix, in
    scattered units, cut media spans, unequal position rows, and a padding row if there may be one.

    In large buckets attention over one long request would cost more than all else. There are more
    requests there; where only one is possible, it has half of the rows and no prefix.
    """
    large = limits.bucket > LARGE and limits.phase is Phase.PREFILL
    parts = min(limits.max_requests, max(limits.bucket // 64, 2))
    for n in (max(limits.previous + 1, limits.bucket - 1), limits.previous + 1, 1):
        for requests in _shapes(limits, n, parts):
            if large and len(requests) == 1:
                requests = ((0, max(limits.bucket // 2, 1)),)
            if limits.allow(requests):
                return Case("mixed", requests, Media.CUT, unequal=True, scattered=True)
    return None


def _candidates(limits: Limits, level: ProofLevel) -> Iterator[Case]:
    mixed = mixed_case(limits)
    if mixed is not None:
        yield mixed
    if level is not ProofLevel.FULL:
        return
    top, low = limits.bucket, limits.previous + 1
    short = max(low, top - 1)
    yield Case("all rows live", _first(limits, top, 1))
    yield Case("one padding row", _first(limits, short, 1))
    yield Case("just above the previous bucket", _first(limits, low, 1))
    yield Case("two requests", _first(limits, short, 2), unequal=True)
    yield Case("as many requests as fit", _first(limits, short, limits.max_requests))
    yield Case("cached prefix", _first(limits, short, 1, cached=True), scattered=True)
    yield Case("cut media span", _first(limits, short, 1, cached=True), Media.CUT, unequal=True)
    yield Case("text only", _first(limits, low, 2), Media.NONE)


def _first(
    limits: Limits, n: int, parts: int, *, cached: bool = False
) -> tuple[tuple[int, int], ...]:
    """The richest legal batch of ``n`` rows; empty, thus illegal, if there is none."""
    shapes = list(_shapes(limits, n, parts))
    if not cached and limits.phase is Phase.PREFILL:
        shapes = [tuple((0, end - start) for start, end in shape) for shape in shapes]
    return next((shape for shape in shapes if limits.allow(shape)), ())


def _shapes(limits: Limits, n: int, parts: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Batches of ``n`` rows, from the one with most in it to the plainest."""
    unit = limits.unit_tokens
    if limits.phase is Phase.DECODE:
        # A decoded token always has a past. Its length differs by request and crosses units.
        for reach in (3 * unit, unit, 1):
            pasts = [1 + (i * (unit + 1) + reach - 1) % reach for i in range(n)]
            yield tuple((past, past + 1) for past in pasts)
        return
    for k in sorted({min(parts, n), 1}, reverse=True):
        lengths = _split(n, k) if k > 1 else _fewest(n, limits.max_context)
        for past in (2 * unit + 1, 1, 0):
            starts = [
                min(past, max(limits.max_context - length, 0)) if i == 0 else 0
                for i, length in enumerate(lengths)
            ]
            yield tuple((s, s + length) for s, length in zip(starts, lengths, strict=True))


def _split(n: int, k: int) -> list[int]:
    """``n`` in ``k`` unequal parts, the last the longest."""
    weights = range(1, k + 1)
    lengths = [max(n * w // sum(weights), 1) for w in weights]
    lengths[-1] += n - sum(lengths)
    return lengths


def _fewest(n: int, longest: int) -> list[int]:
    return [longest] * (n // longest) + ([n % longest] if n % longest else [])
