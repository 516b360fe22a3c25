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
    """

    pages: Sequence[VirtualPage]
    start: int
    end: int
    blocks: Sequence[tuple[int, int]] = ()


class Batch:
    """Requests that lie one after another in a step's rows.

    Attributes:
        starts, ends, n_rows, first_row: int64 ``[B]``; owner_of_row, position_of_row: ``[T]``.

    Raises:
        SlotError: see :func:`firstlight.attention.metadata.attention_values`.
    """

    def __init__(self, rows: Sequence[RowsInMemory], *, page_size: int, max_pages: int) -> None:
        self._rows = rows
        self.page_size = page_size
        self.max_pages = max_pages
        self.starts = np.array([r.start for r in rows], dtype=np.int64)
        self.ends = np.array([r.end for r in rows], dtype=np.int64)
        self.n_rows = self.ends - self.starts
        self.n_pages = -(-self.ends // page_size)
        for request in rows:
            _check(request, page_size, max_pages)
        self.first_row = np.cumsum(self.n_rows) - self.n_rows
        self.owner_of_row, self.position_of_row = _ranges(self.starts, self.n_rows)
        self._pages: Ints = _join([r.pages for r in rows], self.n_pages.tolist())

    def __len__(self) -> int:
        return len(self._rows)

    def first_seen(self, window: int | None) -> Ints:
        """int64 ``[B]``: the first position that a request's rows see."""
        return np.zeros_like(self.starts) if window is None else _back(self.starts, window)

    def pages_from(self, first: Ints) -> tuple[Ints, Ints, Ints]:
        """Each request's pages from its page number ``first[i]`` to the end of its rows.

        Returns:
            their request, their number in it and their virtual page, int64 ``[n]`` each.
        """
        owner, column = _ranges(first, self.n_pages - first)
        base = np.cumsum(self.n_pages) - self.n_pages
        return owner, column, self._pages[base[owner] + column]

    def slots(self, table: NDArray[np.int32], owner: Ints, position: Ints) -> Ints:
        """Physical token slots, int64 ``[n]``, of positions of requests with this page table."""
        page = table[owner, position // self.page_size].astype(np.int64)
        return page * self.page_size + position % self.page_size

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


def _back(position: Ints, window: int) -> Ints:
    return np.maximum(position - window + 1, 0)


def _ranges(first: Ints, length: Ints) -> tuple[Ints, Ints]:
    """The integers ``[first[i], first[i] + length[i])`` one after another, and each one's ``i``."""
    owner = np.repeat(np.arange(len(first)), length)
    begin = np.cumsum(length) - length
    return owner, np.arange(len(owner)) + (first - begin)[owner]


def _join(pages: Sequence[Sequence[VirtualPage]], used: Sequence[int]) -> Ints:
    parts = [np.asarray(p, dtype=np.int64)[:n] for p, n in zip(pages, used, strict=True)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
