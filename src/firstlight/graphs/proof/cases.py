"""Which batches a bucket is proven with: legal ones, at the edges of what it will serve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from firstlight.core.reason import Phase
from firstlight.graphs.proof.memory import Blocks
from firstlight.graphs.proof.report import ProofLevel

Requests = tuple[tuple[int, int], ...]

GUARDS = 2
"""Units lent but given to no request: first and last of the loan, so also the sink's neighbour.
A memory of very few units goes without."""


LARGE = 128
"""Rows from which attention, not launching operations, decides what a run costs."""

LONGEST_BLOCK = 32
"""Rows of a media block in a case; windows of a large bucket's rows hold whole blocks."""


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
        shared: so many units, the first ones, are the same for all requests whose cached prefix is
            that long: a prefix found in the units of another request.
        blocks: rows and prefixes have media blocks, see :func:`media_blocks`.
    """

    name: str
    requests: Requests
    media: Media = Media.ALL
    unequal: bool = False
    scattered: bool = False
    shared: int = 0
    blocks: bool = False

    @property
    def tokens(self) -> int:
        """Live rows."""
        return sum(end - start for start, end in self.requests)


def fits_always(requests: Sequence[tuple[int, int]]) -> bool:
    """For memories of one side: units are all that a batch needs."""
    return True


@dataclass(frozen=True, slots=True)
class Limits:
    """What a batch of one bucket may be.

    Attributes:
        previous: the next smaller bucket; batches up to it go there. 0 if there is none.
        max_requests, max_context, unit_tokens, free_units: of the slots and of the memory.
        windows: of the memory's sides, ascending; without those that hide nothing.
        prefix_lm: rows of a media block see each other.
        fits: whether every side of the memory has room for requests.
    """

    phase: Phase
    bucket: int
    previous: int
    max_requests: int
    max_context: int
    unit_tokens: int
    free_units: int
    windows: tuple[int, ...] = ()
    prefix_lm: bool = False
    fits: Callable[[Sequence[tuple[int, int]]], bool] = field(default=fits_always, compare=False)

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
            and self.fits([*requests, *self._beside])
        )

    @property
    def _beside(self) -> Requests:
        """The guards as a request; sides hold them beside the batch."""
        return ((0, self.guards * self.unit_tokens),) if self.guards else ()

    @property
    def guards(self) -> int:
        """Units to lend beside those of the requests."""
        return GUARDS if self.free_units > 2 * GUARDS else 0


def plan_cases(limits: Limits, level: ProofLevel) -> list[Case]:
    """The batches of one bucket; empty if no batch of it fits the memory."""
    found: dict[tuple[object, ...], Case] = {}
    for case in _candidates(limits, level):
        if limits.allow(case.requests):
            key = (case.requests, case.media, case.unequal, case.scattered, case.shared)
            found.setdefault(key, replace(case, blocks=limits.prefix_lm))
    return list(found.values())


def mixed_case(limits: Limits) -> Case | None:
    """The one batch that holds most at once: a decoded row beside chunks, one of them with its
    cached prefix in the units of the former, beyond every window where there is room, in scattered
    units, media blocks, cut media spans, unequal position rows, and a padding row and a request row
    that is not in use, if there may be.

    In large buckets attention over one long request would cost more than all else. There are more
    requests there; where only one is possible, it has half of the rows and no prefix.
    """
    large = limits.bucket > LARGE and limits.phase is Phase.PREFILL
    room = limits.max_requests - (limits.max_requests > 2)
    parts = min(room, max(limits.bucket // 64, 3))
    for n in (max(limits.previous + 1, limits.bucket - 1), limits.previous + 1, 1):
        for requests in shapes(limits, n, parts):
            if large and len(requests) == 1:
                requests = ((0, max(limits.bucket // 2, 1)),)
            if limits.allow(requests):
                return Case(
                    "mixed", requests, Media.CUT, unequal=True, scattered=True,
                    shared=_shared(limits, requests), blocks=limits.prefix_lm,
                )  # fmt: skip
    return None


def media_blocks(start: int, end: int) -> Blocks:
    """The media blocks of a request whose rows ``[start, end)`` are computed: whole or not at all.

    One at the end of the cached prefix; among the rows two that touch each other, with rows of no
    block before and behind them, as far as there are rows for all that.
    """
    blocks = [(max(start - LONGEST_BLOCK, start // 2), start)] if start > 1 else []
    n = end - start
    size = min(n // 3, LONGEST_BLOCK)
    first = start + n // 6
    if n > 5:
        blocks += [(first, first + size), (first + size, first + 2 * size)]
    elif n > 1:
        blocks.append((start + n // 4, start + n // 4 + max(n // 2, 2)))
    return tuple(blocks)


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
    near = replace(limits, windows=())
    yield Case("cached prefix", _first(near, short, 1, cached=True), scattered=True)
    yield Case("cut media span", _first(near, short, 1, cached=True), Media.CUT, unequal=True)
    yield Case("text only", _first(limits, low, 2), Media.NONE)
    for window in limits.windows:
        for past, what in ((window, "as long as"), (window + limits.unit_tokens + 1, "beyond")):
            requests = _behind(limits, short, past)
            yield Case(f"a prefix {what} the window of {window}", requests, scattered=True)
    if limits.phase is Phase.PREFILL:
        together = _together(limits, short)
        yield Case(
            "a prefix in units of another request", together, shared=_shared(limits, together)
        )
        yield Case("decoded rows beside a chunk", _beside_chunk(limits, short), scattered=True)


def _first(limits: Limits, n: int, parts: int, *, cached: bool = False) -> Requests:
    """The richest legal batch of ``n`` rows; empty, thus illegal, if there is none."""
    found = list(shapes(limits, n, parts))
    if not cached and limits.phase is Phase.PREFILL:
        found = [tuple((0, end - start) for start, end in shape) for shape in found]
    return next((shape for shape in found if limits.allow(shape)), ())


def _behind(limits: Limits, n: int, past: int) -> Requests:
    """``n`` rows behind a cached prefix of ``past`` positions; fewer if a context ends before."""
    if limits.phase is Phase.DECODE:
        return tuple((past + i, past + i + 1) for i in range(n))
    return ((past, min(past + n, limits.max_context)),)


def _together(limits: Limits, n: int) -> Requests:
    """Two requests behind prefixes of whole units, the second's one unit longer."""
    unit = limits.unit_tokens
    half = max(n // 3, 1)
    return ((unit, unit + half), (2 * unit, 2 * unit + max(n - half, 1)))


def _beside_chunk(limits: Limits, n: int) -> Requests:
    """As many decoded rows as there are requests but one, and a chunk behind a cached prefix."""
    unit, rows = limits.unit_tokens, min(limits.max_requests - 1, n - 1)
    pasts = [1 + i * (unit + 1) for i in range(rows)]
    chunk = (unit + 1, unit + 1 + n - rows)
    middle = rows // 2
    decoded = [(past, past + 1) for past in pasts]
    return (*decoded[:middle], chunk, *decoded[middle:]) if rows > 0 else ()


def shapes(limits: Limits, n: int, parts: int) -> Iterator[Requests]:
    """Batches of ``n`` rows, from the one with most in it to the plainest."""
    unit = limits.unit_tokens
    beyond = [window + unit + 1 for window in reversed(limits.windows)]
    if limits.phase is Phase.DECODE:
        # A decoded token always has a past. Its length differs by request and crosses units.
        for far in (*beyond, 0):
            for reach in (3 * unit, unit, 1):
                pasts = [1 + (i * (unit + 1) + reach - 1) % reach for i in range(n)]
                pasts = [past + (far if i % 2 == 0 else 0) for i, past in enumerate(pasts)]
                yield tuple((past, past + 1) for past in pasts)
        return
    for k in sorted({min(parts, n), min(parts, n, 2), 1}, reverse=True):
        for past in (*beyond, 2 * unit + 1, 1, 0):
            yield _chunks(limits, n, k, past)


def _chunks(limits: Limits, n: int, k: int, past: int) -> Requests:
    """``n`` rows of ``k`` requests, the first behind ``past`` positions.

    Of several, that one is a decoded row, and the second is a chunk behind as many whole units.
    """
    lengths = _fewest(n, limits.max_context) if k == 1 else [1, *_split(n - 1, k - 1)]
    starts = [0] * len(lengths)
    starts[0] = min(past, max(limits.max_context - lengths[0], 0))
    if k > 1:
        room = min(starts[0], max(limits.max_context - lengths[1], 0))
        starts[1] = room // limits.unit_tokens * limits.unit_tokens
    return tuple((s, s + length) for s, length in zip(starts, lengths, strict=True))


def _shared(limits: Limits, requests: Requests) -> int:
    """Whole units of cached prefix that at least two requests have."""
    whole = sorted(start // limits.unit_tokens for start, _ in requests)
    return whole[-2] if len(whole) > 1 else 0


def _split(n: int, k: int) -> list[int]:
    """``n`` in ``k`` unequal parts, the last the longest."""
    weights = range(1, k + 1)
    lengths = [max(n * w // sum(weights), 1) for w in weights]
    lengths[-1] += n - sum(lengths)
    return lengths


def _fewest(n: int, longest: int) -> list[int]:
    return [longest] * (n // longest) + ([n % longest] if n % longest else [])
