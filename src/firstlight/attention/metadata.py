"""What attention must know of a batch, as values for its slots.

Slots of each side (B requests, T rows); the full side has the bare names, a windowed side has
``.`` and its own name behind them:

* ``write_locations`` int64 ``[T]``: physical token slot that each row's key and value go to;
* ``page_table`` int32 ``[B, max_pages]``: the physical pages of a request that its rows see or
  write, each at its index in the context; the sink elsewhere;
* ``attention_rows`` int64 ``[B, 4]``: first row, rows, context length after the step, and ``run``:
  the physical token slot of the first position that the request's rows see on this side, if all
  that they see lies in one run of pages, else -1. Fewer than ``FEW_ROWS`` rows that are a prompt's
  have ``-3 - slot`` and -2 there: the compiled kernels compute them as they do many rows, and for
  all others anything below 0 means that pages are looked up in the table.

Prefix-LM models have one more for all sides: ``block_bounds`` int64 ``[T, 2]``, the half-open range
of positions of each row's media block, ``(p, p + 1)`` for a row at position p outside of blocks.

A row at position p sees the key at j iff ``j <= p`` or j is in its block, and, on a windowed side,
``p - j < window``: a window cuts a block that is longer than itself, as in Gemma 3's own code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstlight.attention.batch import Batch, RowsInMemory
from firstlight.errors import SlotError
from firstlight.memory.ids import SINK_PAGE
from firstlight.memory.layout import SideSpec
from firstlight.memory.page_map import Translation

SCATTERED = -1
FEW_ROWS = 8
_PROMPT = -3  # less the slot, or less SCATTERED
BLOCK_BOUNDS = "block_bounds"

Side = tuple[SideSpec, Translation]


def slot_suffix(side: SideSpec) -> str:
    """What a side's slot names end in: nothing for the full side, else e.g. ``.window_512``."""
    return "" if side.window is None else f".{side.name}"


def attention_values(
    rows: Sequence[RowsInMemory],
    *,
    sides: Sequence[Side],
    page_size: int,
    max_pages: int,
    prefix_lm: bool = False,
) -> dict[str, Tensor]:
    """The live part of the slots for a batch whose requests lie one after another.

    Args:
        sides: each side with its map from virtual to physical pages, asked once.
        max_pages: columns of the page tables.
        prefix_lm: whether there is a slot for media blocks.

    Raises:
        SlotError: a request has no rows; holds fewer pages than its positions need, or more than a
            table row takes; one of its pages is not bound on a side whose rows see or write it; a
            media block is cut by the chunk's edge, or given though ``prefix_lm`` is not set.
    """
    batch = Batch(rows, page_size=page_size, max_pages=max_pages)
    values: dict[str, Tensor] = {}
    for spec, translation in sides:
        for name, array in _side_values(batch, spec, translation).items():
            values[name + slot_suffix(spec)] = torch.from_numpy(array)
    if prefix_lm:
        values[BLOCK_BOUNDS] = torch.from_numpy(batch.block_bounds())
    elif any(r.blocks for r in rows):
        raise SlotError("a request brings media blocks, but the model declares a causal mask")
    return values


def _side_values(
    batch: Batch, spec: SideSpec, translation: Translation
) -> dict[str, NDArray[np.signedinteger]]:
    owner, number, virtual = batch.owner_of_page, batch.number_of_page, batch.pages
    if spec.window is not None:
        first_page = batch.first_seen(spec.window) // batch.page_size
        kept = number >= first_page[owner]
        owner, number, virtual = owner[kept], number[kept], virtual[kept]
    physical = translation.translate(virtual)
    # A virtual sink lies at the sink; any other page there is one that the side does not hold.
    if np.count_nonzero(physical) != np.count_nonzero(virtual):
        at = int(np.argmax((physical == SINK_PAGE) & (virtual != SINK_PAGE)))
        raise SlotError(
            f"virtual page {virtual[at]}, number {number[at]} of request {owner[at]} of the batch, "
            f"is not bound on the side {spec.name}"
        )
    table = np.zeros((len(batch), batch.max_pages), dtype=np.int32)
    table[owner, number] = physical
    facts = np.empty((len(batch), 4), dtype=np.int64)
    facts[:, 0], facts[:, 1], facts[:, 2] = batch.first_row, batch.n_rows, batch.ends
    facts[:, 3] = _first_slot(batch, table, spec.window)
    # A request is in one run iff each of its pages follows the one before it.
    torn = np.flatnonzero(physical[1:] - physical[:-1] != 1)
    facts[owner[torn[owner[torn] == owner[torn + 1]]], 3] = SCATTERED
    if batch.of_prompt.any():
        few = batch.of_prompt & (batch.n_rows < FEW_ROWS)
        facts[few, 3] = _PROMPT - facts[few, 3]
    locations = table[batch.owner_of_row, batch.page_of_row].astype(np.int64)
    locations *= batch.page_size
    locations += batch.offset_of_row
    return {"write_locations": locations, "page_table": table, "attention_rows": facts}


def _first_slot(
    batch: Batch, table: NDArray[np.int32], window: int | None
) -> NDArray[np.signedinteger]:
    """Physical token slot ``[B]`` of the first position that each request's rows see."""
    if window is None:
        return table[:, 0] * np.int64(batch.page_size)
    page, offset = np.divmod(batch.first_seen(window), batch.page_size)
    return table[np.arange(len(batch)), page] * np.int64(batch.page_size) + offset
