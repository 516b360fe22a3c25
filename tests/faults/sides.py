"""Faults of memories of several sides: page maps, windows, tables, media blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from firstlight.errors import CaptureError, ContractError, SlotError
from firstlight.graphs import Padding, SlotSpec
from firstlight.graphs.proof import Placed
from firstlight.graphs.sanitizer import Report
from firstlight.graphs.slots import BLOCK_BOUNDS
from tests.faults.fault import Caught, Fault, Level, collected
from tests.graphs.sided import (
    LAYERS,
    PAGE,
    SLIDING,
    WINDOW,
    WINDOWED,
    Parts,
    SidedDecoder,
    SidedPages,
    SidedRig,
)

_CONTRACT, _PROOF, _SANITIZER = Level.CONTRACT, Level.PROOF, Level.SANITIZER
_TABLE, _FACTS = f"page_table{WINDOWED}", f"attention_rows{WINDOWED}"


def examined(parts: Callable[[], Parts]) -> Callable[[], Caught]:
    """Runs a mutated rig through every level, each on parts of its own."""

    def examine() -> Caught:
        found: dict[Level, list[Any]] = {level: [] for level in Level}
        _plain(parts(), found)
        _sanitized(parts(), found)
        return collected(found)

    return examine


def _plain(parts: Parts, found: Mapping[Level, list[Any]]) -> None:
    try:
        rig = SidedRig(parts)
        report = rig.runner.capture_all()
        found[Level.CAPTURE].extend(failure.error for failure in report.failures)
        if report.proof is not None:
            found[Level.PROOF] += [f for p in report.proof.buckets for f in p.findings]
            found[Level.PROOF] += report.proof.unread
        rig.serve()
    except (ContractError, SlotError) as error:
        found[Level.CONTRACT].append(error)
    except (IndexError, RuntimeError):
        pass  # a crash while serving is what the checks should have foreseen


def _sanitized(parts: Parts, found: Mapping[Level, list[Any]]) -> None:
    report = Report()
    try:
        rig = SidedRig(parts, report=report)
        rig.runner.capture_all()
        rig.serve()
    except (ContractError, SlotError, CaptureError, IndexError, RuntimeError):
        pass  # what it found before is in the report
    found[Level.SANITIZER].extend(report)


def _memory(memory: type[SidedPages], *, prefix_lm: bool = False) -> Callable[[], Caught]:
    return examined(lambda: Parts(memory=memory, prefix_lm=prefix_lm))


def _decoder(decoder: type[SidedDecoder]) -> Callable[[], Caught]:
    return examined(lambda: Parts(decoder))


# -- page maps --------------------------------------------------------------------------------


class PageAsSlot(SidedPages):
    """A page id is looked up in a map of token slots, and what comes out is made a page again."""

    def physical(self, side: str, unit: int) -> int:
        return super().physical(side, unit // PAGE if side else unit)


class Twice(SidedPages):
    """What the map gave goes through the map once more."""

    def physical(self, side: str, unit: int) -> int:
        once = super().physical(side, unit)
        return super().physical(side, once)


class OtherSide(SidedPages):
    """The windowed layers get the page table of the full side."""

    def physical(self, side: str, unit: int) -> int:
        return super().physical("", unit)


class ShortMap(SidedPages):
    """The map has an entry for each page of its own pool, not for each virtual page."""

    def physical(self, side: str, unit: int) -> int:
        entries = [super(ShortMap, self).physical(side, u) for u in range(SLIDING)]
        return entries[unit] if side else unit


class Tombstone(SidedPages):
    """A page that was unbound reads -1 from the map, and nobody makes the sink of it."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        values = super().values(requests)
        for row, request in zip(values[_TABLE], requests, strict=True):
            row[: request.first_seen(WINDOW) // PAGE] = -1
        return values


# -- tables and facts -------------------------------------------------------------------------


class StaleTail(SidedPages):
    """Only the live part of a table row is written; behind it stand pages of an older batch."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        values = super().values(requests)
        for row, request in zip(values[_TABLE], requests, strict=True):
            row[-(-request.end // PAGE) :] = 1
        return values


class Unbound(SidedPages):
    """Pages are unbound one position too early, counted from the row behind the first."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        values = super().values(requests)
        for row, request in zip(values[_TABLE], requests, strict=True):
            row[: replace(request, start=request.start + PAGE).first_seen(WINDOW) // PAGE] = 0
        return values


def _kept_facts() -> Parts:
    """Rows of requests that are not in the batch keep what an earlier one left."""

    def specs(declared: list[SlotSpec]) -> list[SlotSpec]:
        return [replace(s, padding=Padding.KEEP) if s.name == _FACTS else s for s in declared]

    return Parts(specs=specs)


# -- windows ----------------------------------------------------------------------------------


class TooWide(SidedDecoder):
    def window(self, layer: int) -> int | None:
        return WINDOW + 1 if LAYERS[layer] else None


class TooNarrow(SidedDecoder):
    def window(self, layer: int) -> int | None:
        return WINDOW - 1 if LAYERS[layer] else None


class Windowless(SidedDecoder):
    def window(self, layer: int) -> int | None:
        return None


class SeesNext(SidedDecoder):
    def sees(self, layer: int, position: Tensor, bounds: Tensor | None) -> Tensor:
        return super().sees(layer, position + 1, bounds)


# -- media blocks -----------------------------------------------------------------------------


class BoundsAbsent(SidedPages):
    """The batch brings no bounds at all."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        return {k: v for k, v in super().values(requests).items() if k != BLOCK_BOUNDS}


class BoundsDropped(SidedPages):
    """Every row is said to lie outside of blocks."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        return super().values([replace(request, blocks=()) for request in requests])


class BoundsShifted(SidedPages):
    """Bounds are counted from the position behind the first."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        values = super().values(requests)
        return values | {BLOCK_BOUNDS: values[BLOCK_BOUNDS] + 1}


class BoundsOfRows(SidedPages):
    """Bounds are counted in rows of the batch and not in positions of the request."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        values = super().values(requests)
        starts = torch.cat([torch.full((len(r), 1), r.start) for r in requests])
        return values | {BLOCK_BOUNDS: values[BLOCK_BOUNDS] - starts}


class BlocksJoined(SidedPages):
    """Two blocks that touch are taken for one."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        joined = []
        for request in requests:
            blocks: list[tuple[int, int]] = []
            for low, high in request.blocks:
                touches = blocks and blocks[-1][1] == low and low > request.start
                first = blocks.pop()[0] if touches else low
                blocks.append((first, high))
            joined.append(replace(request, blocks=tuple(blocks)))
        return super().values(joined)


class BoundsUnread(SidedDecoder):
    def sees(self, layer: int, position: Tensor, bounds: Tensor | None) -> Tensor:
        return super().sees(layer, position, None)


FAULTS = (
    Fault(
        "a page taken for a token slot",
        "A page id is looked up in a map of token slots; at a page size of 1 nobody notices.",
        "sglang 38187, 29858",
        _memory(PageAsSlot),
        {_PROOF: "", _SANITIZER: f"slot {_TABLE}"},
    ),
    Fault(
        "virtual pages translated twice",
        "Physical pages of the windowed side go through its map once more.",
        "sglang 38187, 31471",
        _memory(Twice),
        {_PROOF: "", _SANITIZER: f"slot {_TABLE}"},
    ),
    Fault(
        "pages of the other side",
        "Windowed layers use the page numbers of the full pool in their own, smaller one.",
        "sglang 28569, 26957 (missing window buffers)",
        _memory(OtherSide),
        {_PROOF: "", _SANITIZER: f"slot {_TABLE}"},
    ),
    Fault(
        "a map sized by the wrong side",
        "The windowed side's map has as many entries as its pool has pages; ids go further.",
        "sglang 37560",
        _memory(ShortMap),
        {_PROOF: "raised IndexError"},
    ),
    Fault(
        "a tombstone in a page table",
        "A page that left the window stands in the table as -1 instead of as the sink.",
        "variant of sglang 38187 (entries of -1 clamp to the sink)",
        _memory(Tombstone),
        {_SANITIZER: "negative indices"},
    ),
    Fault(
        "a page unbound too early",
        "The oldest page that a window still reaches is unbound, and the sink is read for it.",
        "variant of sglang 35247 (stale lengths)",
        _memory(Unbound),
        {_PROOF: "the sink", _SANITIZER: f"slot {_TABLE}"},
    ),
    Fault(
        "a stale tail of a page table",
        "Behind a request's own pages its table row keeps those of an earlier batch.",
        "sglang 35247; variant of 24361",
        _memory(StaleTail),
        {_SANITIZER: "though no row sees or writes there"},
    ),
    Fault(
        "stale facts of a request that left",
        "Request rows beyond the batch keep their lengths on one of two sides.",
        "sglang 34184",
        examined(_kept_facts),
        {_PROOF: f"padding of slot {_FACTS} is stale", _SANITIZER: f"slot {_FACTS}"},
    ),
    Fault(
        "a window one too wide",
        "A row of a windowed layer sees one position more than the window.",
        "variant of case H36",
        _decoder(TooWide),
        {_PROOF: "left a window of 6", _SANITIZER: "KV memory of window_6"},
    ),
    Fault(
        "a window one too narrow",
        "A row of a windowed layer does not see the oldest position of its window.",
        "variant of case H36",
        _decoder(TooNarrow),
        {_PROOF: "the oldest position in a window of 6"},
    ),
    Fault(
        "a windowed layer that looks at everything",
        "A windowed layer attends to its whole context: to the sink, for pages that are unbound.",
        "sglang 29858, 28569",
        _decoder(Windowless),
        {_PROOF: "the sink", _SANITIZER: "KV memory of window_6, sink page"},
    ),
    Fault(
        "a row that sees the next one",
        "The causal mask is off by one.",
        "variant of case H36",
        _decoder(SeesNext),
        {_PROOF: "a later row", _SANITIZER: "unused_memory_read"},
    ),
    Fault(
        "media blocks that a batch does not bring",
        "A step of a prefix-LM leaves out which rows see each other.",
        "variant of vllm 43716",
        _memory(BoundsAbsent, prefix_lm=True),
        {_CONTRACT: "no value for the slot 'block_bounds'", _PROOF: "raised SlotError"},
    ),
    Fault(
        "media blocks dropped",
        "Every row is said to lie outside of media blocks, so that pictures are read causally.",
        "variant of vllm 43716, 43776",
        _memory(BoundsDropped, prefix_lm=True),
        {_PROOF: "media blocks"},
    ),
    Fault(
        "media blocks one too far",
        "The bounds of a block begin and end one position too late.",
        "variant of sglang 37968",
        _memory(BoundsShifted, prefix_lm=True),
        {_PROOF: "a later", _SANITIZER: "leave out its own position"},
    ),
    Fault(
        "media blocks counted in rows",
        "Bounds are counted from the first row of the chunk, as if nothing were cached before it.",
        "variant of sglang 37968",
        _memory(BoundsOfRows, prefix_lm=True),
        {_PROOF: "", _SANITIZER: "slot block_bounds"},
    ),
    Fault(
        "two media blocks taken for one",
        "Pictures without text between them see each other.",
        "variant of sglang 37968",
        _memory(BlocksJoined, prefix_lm=True),
        {_PROOF: "a later media block"},
    ),
    Fault(
        "media blocks that no layer reads",
        "The body declares a prefix-LM mask and attends causally.",
        "variant of vllm 43716",
        examined(lambda: Parts(BoundsUnread, prefix_lm=True)),
        {_PROOF: "a later row of the same media block"},
    ),
)
