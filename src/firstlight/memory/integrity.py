"""Does the KV memory's bookkeeping add up?

Everything is counted anew from what the requests hold, what the tree remembers and what the maps
say, and compared with the running numbers. This reads the whole memory: for tests, and for an idle
engine in debug mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, cast

from firstlight.errors import IntegrityError
from firstlight.memory.holding import Holding
from firstlight.memory.ids import VIRTUAL_SINK, PhysicalPage, VirtualPage
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.page import PageAllocator
from firstlight.memory.window_side import WindowSide

P = TypeVar("P", bound=int)


def check(memory: KVMemory, holdings: Sequence[Holding] = ()) -> None:
    """Compare the memory's books with ``holdings``, all that are not released.

    Raises:
        IntegrityError: names everything that does not add up.
    """
    findings = list(_holdings(memory, holdings))
    if not findings:  # counting by pages that are out of range would only add noise
        findings += _tree(memory, holdings)
        findings += _counts(memory, holdings)
        findings += _allocator("virtual", memory.allocator)
        for i, side in enumerate(memory.windows):
            findings += _bindings(memory, side, [(h.pages, h.bound[i]) for h in holdings])
            findings += _allocator(side.spec.name, side.allocator)
    if findings:
        raise IntegrityError(findings)


def _holdings(memory: KVMemory, holdings: Sequence[Holding]) -> Iterator[str]:
    """Page tables in range, no page twice, and shared pages only with all in front of them."""
    owner: dict[VirtualPage, tuple[int, int]] = {}
    for n, holding in enumerate(holdings):
        pages = holding.pages
        if holding.released:
            yield f"request {n} was released and is said to be running"
        for i, page in enumerate(pages):
            if not 0 < page < memory.allocator.n_pages:
                yield f"request {n}: page table entry {i} is {page}, out of range"
                continue
            other, at = owner.setdefault(page, (n, i))
            if other == n and at != i:
                yield f"request {n} holds page {page} twice"
            elif other != n and holdings[other].pages[: at + 1] != pages[: i + 1]:
                yield f"page {page} belongs to requests {other} and {n}, which share no prefix"
        if len(holding.bound) != len(memory.windows):
            yield f"request {n} knows {len(holding.bound)} of {len(memory.windows)} windowed sides"
        for bound in holding.bound:
            if not 0 <= bound.start <= bound.stop <= len(pages):
                yield f"request {n}: bound pages {bound} of {len(pages)} are out of range"


def _tree(memory: KVMemory, holdings: Sequence[Holding]) -> Iterator[str]:
    """Cached pages lie behind full cached pages, whoever holds one holds its parent, and the others
    are idle, each in front of its parent in the order of eviction."""
    parents = {page: parent for page, parent, _ in memory.tree.items()}
    partial = {p for p in parents if memory.tree.n_positions(p) < memory.page_size}
    for page, parent, key in memory.tree.items():
        if parent in partial:
            yield f"cached page {page} continues page {parent}, which is not full"
        if not 0 < page < memory.allocator.n_pages:
            yield f"cached page {page} is out of range"
        elif parent != VIRTUAL_SINK and parent not in parents:
            yield f"cached page {page} continues page {parent}, which is not cached"
        elif memory.tree.child(parent, key) != page:
            yield f"cached page {page} cannot be reached from page {parent}"
    held = {page for holding in holdings for page in holding.pages}
    for page in sorted(partial & held):
        yield f"page {page} is cached, held, and not full"
    idle = memory.tree.idle()
    for page in sorted(set(idle) ^ (set(parents) - held)):
        state = "held" if page in held else "not idle and not held"
        yield f"page {page} is cached, {state}" if page in parents else f"idle {page} is not cached"
    seen: set[VirtualPage] = set()
    for page in idle:
        seen.add(page)
        if parents.get(page) in seen:
            yield f"cached page {page} would be evicted after page {parents[page]} in front of it"
    for n, holding in enumerate(holdings):
        for before, page in zip([VIRTUAL_SINK, *holding.pages], holding.pages, strict=False):
            if page in parents and parents[page] != before:
                yield f"request {n} holds page {page} and not page {parents[page]} in front of it"


def _counts(memory: KVMemory, holdings: Sequence[Holding]) -> Iterator[str]:
    """Each page's count is its holders and the tree; free pages have none, the others some."""
    counted = Counter(page for holding in holdings for page in holding.pages)
    counted.update(page for page, _, _ in memory.tree.items())
    for number in range(memory.allocator.n_pages):
        page = VirtualPage(number)
        count, owners = memory.counts[page], counted[page]
        if count != owners:
            tree = ", the prefix tree among them" if page in memory.tree else ""
            yield f"page {page} has count {count} and {owners} owners{tree}"
        if owners and memory.allocator.is_free(page):
            yield f"page {page} is free and has {owners} owners"
        if not owners and page != VIRTUAL_SINK and not memory.allocator.is_free(page):
            yield f"page {page} leaked: it is neither free nor anybody's"
    usage = memory.usage().pages
    held = len({page for holding in holdings for page in holding.pages})
    if usage.held != held:
        yield f"{usage.free} free + {usage.cached} cached + {held} held pages are not all"


def _allocator(name: str, allocator: PageAllocator[P]) -> Iterator[str]:
    """The runs of free pages are disjoint and in range, and hold exactly the free pages."""
    listed = Counter(page for start, n in allocator.runs() for page in range(start, start + n))
    for page, times in listed.items():
        if times > 1:
            yield f"{name}: page {page} is in {times} free runs"
        if not 0 < page < allocator.n_pages:
            yield f"{name}: free page {page} is out of range"
    flagged = {p for p in range(allocator.n_pages) if allocator.is_free(cast("P", p))}
    for page in sorted(flagged ^ set(listed)):
        yield f"{name}: page {page} is {'' if page in flagged else 'not '}free and the runs differ"
    if allocator.n_free != len(flagged):
        yield f"{name}: {len(flagged)} pages are free and {allocator.n_free} are counted"


def _bindings(
    memory: KVMemory, side: WindowSide, tables: Sequence[tuple[Sequence[VirtualPage], range]]
) -> Iterator[str]:
    """Bindings exist where they are needed or idle, each at a physical page of its own."""
    name = side.spec.name
    needed = Counter(page for pages, bound in tables for page in pages[bound.start : bound.stop])
    idle = set(side.idle())
    bound = side.map.bound()
    for number, count in enumerate(side.needs()):
        page = VirtualPage(number)
        if count != needed[page]:
            yield f"{name}: page {page} has need {count} and {needed[page]} requests need it"
        if needed[page] and page not in bound:
            yield f"{name}: page {page} is needed and not bound"
        if page in bound and (page in idle) == bool(needed[page]):
            state = "both needed and idle" if page in idle else "neither needed nor idle"
            yield f"{name}: the binding of page {page} is {state}"
        if page in bound and not memory.counts[page]:
            yield f"{name}: page {page} is bound and nobody's"
    for page in sorted(idle - set(bound)):
        yield f"{name}: page {page} is idle and not bound"
    if side.map.n_virtual != memory.allocator.n_pages:
        yield f"{name}: the map has {side.map.n_virtual} entries for {memory.allocator.n_pages} ids"
    yield from _places(name, side, bound)


def _places(
    name: str, side: WindowSide, bound: Mapping[VirtualPage, PhysicalPage]
) -> Iterator[str]:
    """Physical pages are in range, taken, and each bound once."""
    places: dict[PhysicalPage, VirtualPage] = {}
    for page, place in bound.items():
        if not 0 < place < side.allocator.n_pages:
            yield f"{name}: page {page} lies at {place}, out of range"
            continue
        if side.allocator.is_free(place):
            yield f"{name}: page {page} lies at {place}, which is free"
        other = places.setdefault(place, page)
        if other != page:
            yield f"{name}: pages {other} and {page} both lie at {place}"
    for number in range(1, side.allocator.n_pages):
        place = PhysicalPage(number)
        if place not in places and not side.allocator.is_free(place):
            yield f"{name}: physical page {place} leaked: it is neither free nor bound"
