"""The slots of a decoder body, derived from its input contract: one width, one place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from firstlight.contract import InputContract, MaskKind, Plane, PlaneDType
from firstlight.core.reason import Phase
from firstlight.errors import ContractError, SlotError
from firstlight.graphs.body import BodyInputs
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Axis, Dim, Extent, Meaning, Padding, SlotSpec

EMBEDS = "input_embeds"
POSITIONS = "positions"
WRITE_LOCATIONS = "write_locations"
PAGE_TABLE = "page_table"
ATTENTION_ROWS = "attention_rows"
BLOCK_BOUNDS = "block_bounds"
LIVE_TOKENS = "num_token_non_padded"

FULL_SIDE = ""
"""The suffix of the side whose layers attend to everything: its slots have the bare names."""

AttentionViews = Callable[[SlotRegistry, Extent], object]


@dataclass(frozen=True, slots=True)
class AttentionNames:
    """The slots of one side, i.e. of one KV pool with pages of its own.

    Attributes:
        suffix: what tells its names from those of other sides, e.g. ``.window_512``.
    """

    suffix: str = FULL_SIDE

    @property
    def write_locations(self) -> str:
        """int64 ``[T]``: the token slot of each row's key and value."""
        return WRITE_LOCATIONS + self.suffix

    @property
    def page_table(self) -> str:
        """int32 ``[B, max_pages]``: each request's pages; the sink where it holds none."""
        return PAGE_TABLE + self.suffix

    @property
    def attention_rows(self) -> str:
        """int64 ``[B, 4]``: first row, rows, context after the step, start of a run or below 0."""
        return ATTENTION_ROWS + self.suffix

    @property
    def all(self) -> tuple[str, str, str]:
        """The three names: write locations, page table, attention rows."""
        return self.write_locations, self.page_table, self.attention_rows


def attention_names(names: Iterable[str]) -> tuple[AttentionNames, ...]:
    """The sides that have all three slots among ``names``, in their order.

    The one place that knows which slots belong together: nobody looks for bare names, since a
    model whose every layer has a window has none of them.
    """
    known = tuple(names)
    found = [
        AttentionNames(name.removeprefix(WRITE_LOCATIONS))
        for name in known
        if name == WRITE_LOCATIONS or name.startswith(f"{WRITE_LOCATIONS}.")
    ]
    return tuple(side for side in found if set(side.all) <= set(known))


def body_slots(
    contract: InputContract,
    dtype: torch.dtype,
    *,
    max_pages: int,
    sides: Sequence[str] = (FULL_SIDE,),
) -> list[SlotSpec]:
    """All slots of one phase; prefill and decode have the same ones.

    Args:
        dtype: of the weights; rows and model-typed planes have it.
        max_pages: entries of one request's page table row.
        sides: see :func:`attention_slots`.
    """
    prefix_lm = contract.mask is MaskKind.PREFIX_LM
    return [
        *row_slots(contract, dtype),
        *attention_slots(max_pages, sides, prefix_lm=prefix_lm),
        live_tokens_slot(),
    ]


def row_slots(contract: InputContract, dtype: torch.dtype) -> list[SlotSpec]:
    """``input_embeds`` [T, width], ``positions`` [R, T] and one slot per plane.

    Raises:
        ContractError: a plane has the name of another slot.
    """
    width, rank = contract.input_embeds_hidden_size, contract.position_rank
    slots = [
        SlotSpec(
            EMBEDS, (Dim.T, width), dtype, Axis.TOKENS, copied=False, segments=contract.segments
        ),
        SlotSpec(POSITIONS, (rank, Dim.T), torch.int64, Axis.TOKENS, meaning=Meaning.INDEX),
    ]
    taken = {EMBEDS, POSITIONS, LIVE_TOKENS, BLOCK_BOUNDS}
    for plane in contract.planes:
        per_side = plane.name.partition(".")[0] in AttentionNames().all
        if plane.name in taken or per_side:
            raise ContractError(f"the plane {plane.name!r} has the name of a slot; rename it")
        slots.append(_plane_slot(plane, dtype))
    return slots


def _plane_slot(plane: Plane, dtype: torch.dtype) -> SlotSpec:
    """A batch without the plane's data gets its neutral value on all rows, not what was there."""
    dtypes = {PlaneDType.MODEL: dtype, PlaneDType.INT64: torch.int64, PlaneDType.INT32: torch.int32}
    return SlotSpec(
        plane.name,
        (Dim.T, *plane.shape),
        dtypes[plane.dtype],
        Axis.TOKENS,
        padding=Padding.ZERO if plane.neutral == 0 else Padding.SENTINEL,
        pad_value=plane.neutral,
        meaning=Meaning.INDEX if plane.index else Meaning.VALUE,
        required=False,
    )


def attention_slots(
    max_pages: int, sides: Sequence[str] = (FULL_SIDE,), *, prefix_lm: bool = False
) -> list[SlotSpec]:
    """What paged attention reads; unused rows point at the sink and have length zero.

    For each side ``write_locations`` [T] token slots; ``page_table`` [B, max_pages] pages;
    ``attention_rows`` [B, 4]: first row, rows, context length, first token slot of a contiguous
    run or less than 0. All index that side's own pool.

    Args:
        sides: suffixes of the names, one for each KV pool.
        prefix_lm: rows of a media block see each other. One more slot for all sides,
            ``block_bounds`` [T, 2]: the half-open range of positions of a row's block. It has the
            meaning of an index, since bounds of padding say which keys are read: they are the
            empty range [0, 0).

    Raises:
        SlotError: two sides of one suffix, or one that does not begin with a dot.
    """
    index = Meaning.INDEX
    specs: list[SlotSpec] = []
    if len(set(sides)) != len(sides) or any(s and not s.startswith(".") for s in sides):
        raise SlotError(f"the sides {list(sides)} need different suffixes, empty or like '.name'")
    for names in map(AttentionNames, sides):
        specs += [
            SlotSpec(names.write_locations, (Dim.T,), torch.int64, Axis.TOKENS, meaning=index),
            SlotSpec(
                names.page_table, (Dim.R, max_pages), torch.int32, Axis.REQUESTS, meaning=index
            ),
            SlotSpec(names.attention_rows, (Dim.R, 4), torch.int64, Axis.REQUESTS),
        ]
    if prefix_lm:
        specs.append(SlotSpec(BLOCK_BOUNDS, (Dim.T, 2), torch.int64, Axis.TOKENS, meaning=index))
    return specs


def live_tokens_slot(tp_size: int = 1, tp_rank: int = 0, *, sharded: bool = False) -> SlotSpec:
    """``num_token_non_padded`` [1] int32, computed at every fill by :func:`live_boundary`."""

    def write(buf: torch.Tensor, live: Extent, padded: Extent) -> None:
        buf.fill_(live_boundary(live.tokens, padded.tokens, tp_size, tp_rank, sharded=sharded))

    return SlotSpec(LIVE_TOKENS, (1,), torch.int32, Axis.NONE, copied=False, hook=write)


def padded_tokens_slot(name: str, ranks: int) -> SlotSpec:
    """Token counts of all ranks [ranks] int32: the bucket for each, whatever the batch says."""

    def write(buf: torch.Tensor, live: Extent, padded: Extent) -> None:
        buf.fill_(padded.tokens)

    return SlotSpec(name, (ranks,), torch.int32, Axis.NONE, copied=False, hook=write)


def live_boundary(
    live: int, padded: int, tp_size: int = 1, tp_rank: int = 0, *, sharded: bool = False
) -> int:
    """How many of this rank's rows are live.

    Where rows are sharded over tensor-parallel ranks, each rank holds ``padded / tp_size`` rows of
    the bucket, so that the boundary follows from the bucket: counted against the live length it
    would mask real rows of the last ranks.
    """
    if not sharded:
        return live
    share = padded // tp_size
    return min(max(live - tp_rank * share, 0), share)


def phase_extent(phase: Phase, rows: int, capacity: Extent) -> Extent:
    """The padded extent of ``rows``: decode has a request per row, prefill all request slots."""
    if phase is Phase.DECODE:
        return Extent(rows, rows)
    return Extent(rows, capacity.requests)


def body_inputs(
    registry: SlotRegistry,
    contract: InputContract,
    extent: Extent,
    attention: AttentionViews | None = None,
) -> BodyInputs:
    """The body's arguments for ``extent``: views of the slots, always the same addresses."""
    return BodyInputs(
        embeds=registry.view(EMBEDS, extent),
        positions=registry.view(POSITIONS, extent),
        planes={plane.name: registry.view(plane.name, extent) for plane in contract.planes},
        attention=None if attention is None else attention(registry, extent),
    )
