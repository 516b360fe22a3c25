"""Faults of slots, of what a fill does with them, and of metadata."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from firstlight.graphs import Extent, Meaning, Padding, SlotRegistry, SlotSpec
from firstlight.graphs.fill import FillPlan
from firstlight.graphs.proof import Placed
from tests.faults.decoder import Pages
from tests.faults.fault import Fault, Level
from tests.faults.graph_rig import Mutation, Parts, examined
from tests.paged_decoder import PAGE

_PROOF, _SANITIZER = Level.PROOF, Level.SANITIZER
Values = dict[str, Tensor]


def _respec(name: str, change: Callable[[SlotSpec], SlotSpec]) -> Mutation:
    """The declaration of one slot, replaced."""

    def mutate(parts: Parts) -> None:
        parts.specs = lambda specs: [change(s) if s.name == name else s for s in specs]

    return mutate


def _resets(name: str, value: float | None) -> Mutation:
    """Padding of one slot gets another value, or (None) is not reset."""

    def mutate(parts: Parts) -> None:
        def plan(registry: SlotRegistry, plan: FillPlan) -> FillPlan:
            ours = registry.buffer(name).untyped_storage().data_ptr()
            resets = []
            for view, neutral in plan.resets:
                mine = view.untyped_storage().data_ptr() == ours
                if not mine:
                    resets.append((view, neutral))
                elif value is not None:
                    resets.append((view, value))
            return replace(plan, resets=tuple(resets))

        parts.plan = plan

    return mutate


def _kept_planes(parts: Parts) -> None:
    """A batch without a plane keeps what the batch before it left."""

    def plan(registry: SlotRegistry, plan: FillPlan) -> FillPlan:
        return replace(plan, copied=tuple(replace(c, whole=None) for c in plan.copied))

    parts.plan = plan


def _metadata(spoil: Callable[[Values, Sequence[Placed]], None]) -> Mutation:
    """The metadata function, which eager runs and replays share."""

    class Spoilt(Pages):
        def values(self, requests: Sequence[Placed]) -> Values:
            values = super().values(requests)
            spoil(values, requests)
            return values

    def mutate(parts: Parts) -> None:
        parts.memory = Spoilt

    return mutate


def _page_too_far(values: Values, requests: Sequence[Placed]) -> None:
    values["write_locations"][-1] += PAGE


def _page_not_slot(values: Values, requests: Sequence[Placed]) -> None:
    values["write_locations"] //= PAGE


def _sink_page(values: Values, requests: Sequence[Placed]) -> None:
    values["write_locations"][0] = PAGE - 1


def _same_slot(values: Values, requests: Sequence[Placed]) -> None:
    values["write_locations"][-1] = values["write_locations"][0]


def _narrow(values: Values, requests: Sequence[Placed]) -> None:
    for row, request in zip(values["page_table"], requests, strict=True):
        row[-(-request.start // PAGE) :] = 0


def _context_short(values: Values, requests: Sequence[Placed]) -> None:
    values["attention_rows"][:, 2] -= 1


def _past_lost(values: Values, requests: Sequence[Placed]) -> None:
    values["attention_rows"][:, 2] = values["attention_rows"][:, 1]


def _first_row_shared(values: Values, requests: Sequence[Placed]) -> None:
    values["attention_rows"][1:, 0] = 0


def _tables_swapped(values: Values, requests: Sequence[Placed]) -> None:
    values["page_table"] = values["page_table"].flip(0)


def _translated_twice(values: Values, requests: Sequence[Placed]) -> None:
    values["page_table"] = torch.where(
        values["page_table"] == 0, 0, (values["page_table"] * 7 + 1) % 23 + 1
    ).to(torch.int32)


def _localised(buf: Tensor, live: Extent, padded: Extent) -> None:
    """As if each of two ranks held half of the live rows, and not half of the bucket."""
    buf.fill_(live.tokens // 2)


def _never(buf: Tensor, live: Extent, padded: Extent) -> None:
    """Not refreshed."""


def _loose_track(spec: SlotSpec) -> SlotSpec:
    """Declared as a value, so that no rule asks where its padding points."""
    return replace(spec, meaning=Meaning.VALUE, padding=Padding.KEEP)


FAULTS = (
    Fault(
        "stale positions in padding",
        "Padding rows keep the positions of an earlier, longer batch.",
        "sglang 24361, 24401",
        examined(_resets("positions", None)),
        {_PROOF: "padding of slot positions is stale", _SANITIZER: "slot positions"},
    ),
    Fault(
        "stale write locations in padding",
        "Padding rows keep an earlier batch's write locations and overwrite its memory.",
        "sglang 24361 (stale indices in padding)",
        examined(_resets("write_locations", None)),
        {_PROOF: "padding of slot write_locations", _SANITIZER: "slot write_locations"},
    ),
    Fault(
        "write locations padded with -1",
        "The padding value of the write locations is -1, which indexes the last token slot.",
        "vllm 43810 (case H04)",
        examined(_resets("write_locations", -1)),
        {_PROOF: "padding of slot write_locations", _SANITIZER: "negative indices"},
    ),
    Fault(
        "stale rows in padding",
        "Padding rows keep the embeddings of an earlier, longer batch.",
        "sglang 35588",
        examined(_resets("input_embeds", None)),
        {_PROOF: "slot input_embeds", _SANITIZER: "slot input_embeds"},
    ),
    Fault(
        "a plane padded with zero that means something",
        "Padding of a plane is 0 although its neutral value is 1.",
        "sglang 29018",
        examined(_resets("layer_embeds", 0)),
        {_PROOF: "padding of slot layer_embeds", _SANITIZER: "slot layer_embeds"},
    ),
    Fault(
        "a plane left from another batch",
        "A batch without data for a plane runs with what the batch before it left.",
        "sglang 29018; vllm 43716",
        examined(_kept_planes),
        {_PROOF: "slot types without data", _SANITIZER: "row_unwritten: slot types"},
    ),
    Fault(
        "DeepStack of another picture under text",
        "Segments are not made neutral, so text rows keep an earlier picture's features.",
        "sglang 33726, 29018",
        examined(_respec("input_embeds", lambda s: replace(s, segments=()))),
        {_PROOF: "slot input_embeds without data", _SANITIZER: "row_unwritten: slot input_embeds"},
    ),
    Fault(
        "a live boundary against the raw length",
        "The boundary between live rows and padding is divided by ranks that share the bucket.",
        "sglang TestPrefillNumTokenNonPadded; 35588",
        examined(_respec("num_token_non_padded", lambda s: replace(s, hook=_localised))),
        {_PROOF: "alone and unpadded"},
    ),
    Fault(
        "a live boundary of another batch",
        "The boundary is not refreshed with the batch.",
        "sglang 35588",
        examined(_respec("num_token_non_padded", lambda s: replace(s, hook=_never))),
        {_PROOF: "num_token_non_padded says", _SANITIZER: "slot num_token_non_padded"},
    ),
    Fault(
        "stale request rows",
        "Rows beyond the batch's requests keep old indices, and foreign state is overwritten.",
        "sglang 34184",
        examined(_respec("track_rows", _loose_track)),
        {_PROOF: "tracks, unit", _SANITIZER: "slot track_rows"},
    ),
    Fault(
        "a row stored in the neighbour's page",
        "One row's keys and values go one page too far.",
        "vllm 43810 (case H04)",
        examined(_metadata(_page_too_far)),
        {_PROOF: "", _SANITIZER: "slot write_locations"},
    ),
    Fault(
        "pages taken for token slots",
        "Page numbers stand where token slots belong, at a page size above 1.",
        "sglang 38187, 29858",
        examined(_metadata(_page_not_slot)),
        {_PROOF: "", _SANITIZER: "slot write_locations"},
    ),
    Fault(
        "a live row in the sink",
        "A live row is stored in the page where padding goes.",
        "variant of vllm 43810",
        examined(_metadata(_sink_page)),
        {_PROOF: "", _SANITIZER: "would be stored in the sink page"},
    ),
    Fault(
        "two rows in one token slot",
        "Two rows of a batch are stored in the same place.",
        "variant of vllm 43810",
        examined(_metadata(_same_slot)),
        {_PROOF: "", _SANITIZER: "are written by several rows"},
    ),
    Fault(
        "a page table of stale width",
        "The table is as wide as the lengths before this step ask for.",
        "sglang 35247",
        examined(_metadata(_narrow)),
        {_PROOF: "", _SANITIZER: "slot page_table"},
    ),
    Fault(
        "a context one short",
        "The context length misses the row that is computed now.",
        "sglang 35247 (stale lengths)",
        examined(_metadata(_context_short)),
        {_SANITIZER: "slot page_table"},
    ),
    Fault(
        "a cached prefix that is not counted",
        "The context length holds the new rows alone.",
        "sglang 35247 (stale lengths)",
        examined(_metadata(_past_lost)),
        {_PROOF: "second of two chunks", _SANITIZER: "slot page_table"},
    ),
    Fault(
        "requests that share a first row",
        "Every request's rows are said to begin at row 0.",
        "vllm 10891 (case H05)",
        examined(_metadata(_first_row_shared)),
        {_PROOF: "alone and unpadded"},
    ),
    Fault(
        "page tables of two requests swapped",
        "Each request reads the other one's context.",
        "variant of sglang 35247",
        examined(_metadata(_tables_swapped)),
        {_PROOF: "", _SANITIZER: ""},
    ),
    Fault(
        "pages translated twice",
        "Physical pages go through the table from virtual to physical pages once more.",
        "sglang 31471, 37560",
        examined(_metadata(_translated_twice)),
        {_PROOF: "", _SANITIZER: "which the batch does not hold"},
    ),
)
