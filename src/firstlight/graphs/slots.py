"""The slots of a decoder body, derived from its input contract: one width, one place."""

from __future__ import annotations

from collections.abc import Callable

import torch

from firstlight.contract import InputContract, Plane, PlaneDType
from firstlight.core.reason import Phase
from firstlight.errors import ContractError
from firstlight.graphs.body import BodyInputs
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Axis, Dim, Extent, Meaning, Padding, SlotSpec

EMBEDS = "input_embeds"
POSITIONS = "positions"
WRITE_LOCATIONS = "write_locations"
PAGE_TABLE = "page_table"
ATTENTION_ROWS = "attention_rows"
LIVE_TOKENS = "num_token_non_padded"

AttentionViews = Callable[[SlotRegistry, Extent], object]


def body_slots(contract: InputContract, dtype: torch.dtype, *, max_pages: int) -> list[SlotSpec]:
    """All slots of one phase; prefill and decode have the same ones.

    Args:
        dtype: of the weights; rows and model-typed planes have it.
        max_pages: entries of one request's page table row.
    """
    return [*row_slots(contract, dtype), *attention_slots(max_pages), live_tokens_slot()]


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
    taken = {EMBEDS, POSITIONS, WRITE_LOCATIONS, PAGE_TABLE, ATTENTION_ROWS, LIVE_TOKENS}
    for plane in contract.planes:
        if plane.name in taken:
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


def attention_slots(max_pages: int) -> list[SlotSpec]:
    """What paged attention reads; unused rows point at the sink and have length zero.

    ``write_locations`` [T] token slots; ``page_table`` [B, max_pages] pages; ``attention_rows``
    [B, 4]: first row, rows, context length, first token slot of a contiguous run or -1.
    """
    index = Meaning.INDEX
    return [
        SlotSpec(WRITE_LOCATIONS, (Dim.T,), torch.int64, Axis.TOKENS, meaning=index),
        SlotSpec(PAGE_TABLE, (Dim.R, max_pages), torch.int32, Axis.REQUESTS, meaning=index),
        SlotSpec(ATTENTION_ROWS, (Dim.R, 4), torch.int64, Axis.REQUESTS),
    ]


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
