"""What one request holds of the KV memory, and what the whole memory says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from firstlight.memory.ids import VirtualPage
from firstlight.memory.prefix_key import PrefixKey


@dataclass(slots=True, eq=False)
class Holding:
    """One request's pages. Only ``KVMemory`` changes it.

    Attributes:
        pages: the page of each ``page_size`` positions, in order; cached ones in front.
        bound: for each windowed side, in the layout's order, the indices into ``pages`` whose
            bindings on that side this request needs.
        cached: tokens found in the prefix cache at the start.
        expected: pages that the request may come to hold; 0 if it did not say.
        known: leading pages whose contents were cached at the start, also where a windowed side had
            lost what a hit needs.
        complete: whether something was published: what leaves a window from then on ends a prefix
            that later requests may go on from.
        published: leading pages that are in the prefix tree, at this request's own ids.
        offered: what others may find of it when it is released, as (key, tokens).
        deferred: whether full pages are cached at the release only, because other pages with the
            same contents were cached first.
        looked_up: whether the cache was asked for it and the statistics do not say so yet.
        released: whether everything was given back.
    """

    pages: list[VirtualPage] = field(default_factory=list)
    bound: list[range] = field(default_factory=list)
    cached: int = 0
    expected: int = 0
    known: int = 0
    complete: bool = False
    published: int = 0
    offered: tuple[PrefixKey, int] | None = None
    deferred: bool = False
    looked_up: bool = False
    released: bool = False


@dataclass(frozen=True, slots=True)
class SpaceUsage:
    """Pages of one space, without its sink: ``free + cached + held`` is all of them.

    Attributes:
        name: ``virtual``, or the side's name.
        free: owned by nobody.
        cached: kept for later requests only, and evicted when pages run short.
        held: needed by running requests.
        evictions: cached pages given up for others since the start.
    """

    name: str
    free: int
    cached: int
    held: int
    evictions: int


@dataclass(frozen=True, slots=True)
class MemoryUsage:
    """The state of the memory at one moment.

    Attributes:
        pages: the virtual space (and with it the full side).
        sides: the windowed sides, in the layout's order.
        lookups: requests that got their first pages while the prefix cache was on; one that was
            preempted counts again.
        hits: those of them that found at least one token in it.
        cached_tokens: tokens found, over all hits.
    """

    pages: SpaceUsage
    sides: tuple[SpaceUsage, ...]
    lookups: int
    hits: int
    cached_tokens: int
