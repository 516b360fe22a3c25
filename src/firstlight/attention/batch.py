"""A batch's positions and pages as arrays: found once a step, whatever the number of sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstlight.errors import SlotError
from firstlight.memory.ids import VirtualPage, pages_for

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """Positions ``[start, end)`` of one request, which are computed now, and its pages.

    Attributes:
        pages: the request's virtual pages, from position 0 on.
        blocks: half-open ranges of positions whose rows see each other (prefix-LM media); those
            that do not touch ``[start, end)`` are passed over.
        is_prompt: whether all of them are a prompt's. Kernels may compute few rows in another way
            than many; those of a prompt, which is cut anywhere, are all computed alike.
    """

    pages: Sequence[VirtualPage]
    start: int
    end: int
    blocks: Sequence[tuple[int, int]] = ()
    is_prompt: bool = False


class Batch:
    """Requests that lie one after another in a step's rows, ``B`` of them in ``T`` rows.

    Attributes:
        starts, ends, n_rows, first_row: int64 ``[B]``.
        of_prompt: bool ``[B]``.
        owner_of_row, position_of_row: int64 ``[T]``; page_of_row and offset_of_row: where in the
            request's pages that is.
        pages: int64 ``[n]``, the virtual pages of all requests' positions ``[0, end)``;
            owner_of_page: their request; number_of_page: their number in it.

    Raises:
        SlotError: see :func:`firstlight.attention.metadata.attention_values`.
    """

    def __init__(self, rows: Sequence[RowsInMemory], *, page_size: int, max_pages: int) -> None:
        for request in rows:
            _check(request, page_size, max_pages)
        self._rows = rows
        self.page_size = page_size
        self.max_pages = max_pages
        self.starts = np.array([r.start for r in rows], dtype=np.int64)
        self.ends = np.array([r.end for r in rows], dtype=np.int64)
        self.n_rows = self.ends - self.starts
        self.first_row = self.n_rows.cumsum() - self.n_rows
        self.of_prompt = np.array([r.is_prompt for r in rows], dtype=np.bool_)
        self.owner_of_row, within = _count(self.n_rows)
        self.position_of_row = within + self.starts[self.owner_of_row]
        self.page_of_row, self.offset_of_row = np.divmod(self.position_of_row, page_size)
        used = [pages_for(r.end, page_size) for r in rows]
        self.pages = _join([r.pages for r in rows], used)
        self.owner_of_page, self.number_of_page = _count(np.array(used, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._rows)

    def first_seen(self, window: int) -> Ints:
        """int64 ``[B]``: the first position that a request's rows see."""
        return np.maximum(self.starts - window + 1, 0)

    def block_bounds(self) -> Ints:
        """int64 ``[T, 2]``: the positions of each row's media block; of itself outside of blocks.

        Raises:
            SlotError: a block is cut by an edge of its request's rows.
        """
        bounds = np.stack([self.position_of_row, self.position_of_row + 1], axis=1)
        for request, first in zip(self._rows, self.first_row.tolist(), strict=True):
            for low, high in request.blocks:
                if high <= request.start or low >= request.end:
                    continue
                if low < request.start or high > request.end:
                    raise SlotError(
                        f"the media block [{low}, {high}) is cut by rows for positions "
                        f"[{request.start}, {request.end}); its rows see each other and must be "
                        "computed in one chunk"
                    )
                bounds[first + low - request.start : first + high - request.start] = (low, high)
        return bounds


def _check(request: RowsInMemory, page_size: int, max_pages: int) -> None:
    if not 0 <= request.start < request.end:
        raise SlotError(f"rows for positions [{request.start}, {request.end}): there is none")
    used = pages_for(request.end, page_size)
    if used > len(request.pages) or used > max_pages:
        raise SlotError(
            f"{request.end} tokens need {used} pages of {page_size}; the request holds "
            f"{len(request.pages)} and a page table row takes {max_pages}"
        )


def _count(length: Ints) -> tuple[Ints, Ints]:
    """The numbers ``0 .. length[i] - 1`` of all lists in one row, behind each one's ``i``."""
    owner = np.arange(len(length)).repeat(length)
    within = np.arange(len(owner))
    if len(length) == 1:
        return owner, within
    return owner, within - (length.cumsum() - length)[owner]


def _join(pages: Sequence[Sequence[VirtualPage]], used: Sequence[int]) -> Ints:
    parts = [np.asarray(p, dtype=np.int64)[:n] for p, n in zip(pages, used, strict=True)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
