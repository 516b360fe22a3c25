"""What a real step would leave in the pools: every slot knows which prefix it was computed from."""

from __future__ import annotations

from collections.abc import Sequence

from firstlight.core.plan import BatchPlan
from firstlight.engine.scheduling.blocks import block_around
from firstlight.memory.kv_memory import CopyRows, KVMemory
from firstlight.memory.layout import KVLayout
from tests.engine.scheduling.fakes import Request

Slots = dict[tuple[str, int], int]  # by a side's name and a token slot of it


def copy_in(slots: Slots, layout: KVLayout, page_size: int) -> CopyRows:
    """What copies positions from page to page in ``slots``, for a memory."""

    def copy(places: Sequence[tuple[int, int]], rows: int) -> None:
        for side, (source, target) in zip(layout.sides, places, strict=True):
            for row in range(rows):
                content = slots.get((side.name, source * page_size + row), 0)  # 0 is nobody's
                slots[side.name, target * page_size + row] = content

    return copy


class Contents:
    """Writes what a chunk computes, and checks what its rows see, on every side."""

    def __init__(self, memory: KVMemory, slots: Slots) -> None:
        self._memory = memory
        self._slots = slots

    def compute(self, plan: BatchPlan[Request]) -> None:
        for chunk in plan.chunks:
            prefixes = _prefixes(chunk.request, chunk.end)
            for position in range(chunk.start, chunk.end):
                for slot in self._places(chunk.request, position):
                    self._slots[slot] = prefixes[position]
        for chunk in plan.chunks:
            prefixes = _prefixes(chunk.request, chunk.end)
            for i, side in enumerate(self._memory.layout.sides):
                for position in range(side.first_seen(chunk.start), chunk.end):
                    slot = self._places(chunk.request, position)[i]
                    assert slot[1] > 0, f"{chunk.request} reads the sink of {side.name}"
                    assert self._slots[slot] == prefixes[position], (
                        f"{chunk.request} reads another's position {position} of {side.name}"
                    )

    def _places(self, request: Request, position: int) -> list[tuple[str, int]]:
        """The slot of a position on each side; slot 0 where its page is unbound."""
        size = self._memory.page_size
        holding = request.holding
        assert holding is not None
        page = holding.pages[position // size]
        places = []
        for side, pages in zip(self._memory.layout.sides, self._memory.maps, strict=True):
            physical = int(pages.physical(page))
            places.append((side.name, physical * size + position % size if physical > 0 else 0))
        return places


def _prefixes(request: Request, end: int) -> list[int]:
    """For each position, a number that stands for all that its keys and values depend on."""
    contents: list[object] = list(request.ids[:end])
    for need in request.needs:
        for span in need.spans:
            for position in range(span.start, min(span.end, end)):
                contents[position] = (need.key, span.row + position - span.start)
    hashes, so_far = [], 0
    for content in contents:
        so_far = hash((so_far, content))
        hashes.append(so_far)
    for start, stop in request.blocks:  # rows of a block see all of it
        if stop <= end:
            assert block_around(request.blocks, end) is None
            hashes[start:stop] = [hashes[stop - 1]] * (stop - start)
    return hashes
