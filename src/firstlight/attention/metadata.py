"""What attention must know of a batch, as values for its slots.

Slots (B requests, T rows):

* ``write_locations`` int64 ``[T]``: token slot that each row's key and value go to;
* ``page_table`` int32 ``[B, max_pages]``: a request's pages in order;
* ``attention_rows`` int64 ``[B, 4]``: first row, rows, context length after the step, and the
  token slot where the context begins if it lies in one run of pages, else -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from firstlight.errors import SlotError
from firstlight.memory.ids import PhysicalPage

SCATTERED = -1


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """Positions ``[start, end)`` of one request, which are computed now, and its pages."""

    pages: Sequence[PhysicalPage]
    start: int
    end: int


def attention_values(
    rows: Sequence[RowsInMemory], *, page_size: int, max_pages: int
) -> dict[str, Tensor]:
    """The live part of the three slots for a batch whose requests lie one after another.

    Raises:
        SlotError: a request holds fewer pages than its positions need, or more than a table row.
    """
    total = sum(r.end - r.start for r in rows)
    locations = np.empty(total, dtype=np.int64)
    table = np.zeros((len(rows), max_pages), dtype=np.int32)
    facts = np.empty((len(rows), 4), dtype=np.int64)
    first = 0
    for i, request in enumerate(rows):
        pages = np.asarray(request.pages, dtype=np.int64)
        used = -(-request.end // page_size)
        if used > len(pages) or used > max_pages:
            raise SlotError(
                f"{request.end} tokens need {used} pages of {page_size}; the request holds "
                f"{len(pages)} and a page table row takes {max_pages}"
            )
        table[i, :used] = pages[:used]
        n = request.end - request.start
        at = np.arange(request.start, request.end)
        locations[first : first + n] = pages[at // page_size] * page_size + at % page_size
        facts[i] = (first, n, request.end, _run_start(pages[:used], page_size))
        first += n
    return {
        "write_locations": torch.from_numpy(locations),
        "page_table": torch.from_numpy(table),
        "attention_rows": torch.from_numpy(facts),
    }


def _run_start(pages: np.ndarray, page_size: int) -> int:
    in_one_run = pages[-1] - pages[0] == len(pages) - 1 and bool((np.diff(pages) == 1).all())
    return int(pages[0]) * page_size if in_one_run else SCATTERED
