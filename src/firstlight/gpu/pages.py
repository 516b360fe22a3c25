"""Page tables on the device: virtual pages to physical ones, positions to token slots."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_PAGES = 128
_ROWS = 128


@triton.jit
def _translate(
    virtual, physical, attention_rows, table, locations, max_pages, ids, page_size, window,
    page_block: tl.constexpr, row_block: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0).to(tl.int64)
    first = tl.load(attention_rows + request * 4)
    rows = tl.load(attention_rows + request * 4 + 1)
    context = tl.load(attention_rows + request * 4 + 2)
    begin = tl.where(window > 0, tl.maximum(context - rows - window + 1, 0), 0) // page_size
    end = (context + page_size - 1) // page_size
    own = virtual + request * max_pages
    for start in range(0, max_pages, page_block):
        number = start + tl.arange(0, page_block)
        there = number < max_pages
        live = there & (number >= begin) & (number < end)
        page = tl.load(own + number, mask=live, other=0)
        live = live & (page >= 0) & (page < ids)
        place = tl.load(physical + page, mask=live, other=0)
        # A page that the side does not hold is marked by a negative number: the sink.
        tl.store(table + request * max_pages + number, tl.maximum(place, 0), mask=there)
    for start in range(0, rows, row_block):
        row = start + tl.arange(0, row_block)
        live = row < rows
        position = context - rows + row
        page = tl.load(own + position // page_size, mask=live, other=0)
        known = live & (page >= 0) & (page < ids)
        place = tl.maximum(tl.load(physical + page, mask=known, other=0), 0).to(tl.int64)
        slot = tl.where(place > 0, place * page_size + position % page_size, 0)
        tl.store(locations + first + row, slot, mask=live)


def translate(
    virtual: Tensor,
    physical: Tensor,
    attention_rows: Tensor,
    table: Tensor,
    locations: Tensor,
    *,
    page_size: int,
    window: int = 0,
) -> None:
    """One side's page table and write locations, from the requests' virtual pages.

    Equal to what :func:`firstlight.attention.metadata.attention_values` gives for pages that are
    all bound; a page that is not bound, negative or beyond the map is the sink, and so is what
    lies before the window or behind the context. A page is translated once.

    Args:
        virtual: int32 ``[B, max_pages]``, each request's pages in order.
        physical: int32 ``[ids]``, the physical page of each virtual one.
        attention_rows: int64 ``[B, 4]``, the slot.
        table: int32 ``[B, max_pages]``, written whole.
        locations: int64 ``[T]``; only rows of requests are written.
    """
    requests, max_pages = virtual.shape
    _translate[(requests,)](
        virtual, physical, attention_rows, table, locations, max_pages, physical.shape[0],
        page_size, window, _PAGES, _ROWS,
    )  # fmt: skip
