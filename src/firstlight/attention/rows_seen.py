"""What each row sees, computed where the metadata lies: no value of it is read on the host."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class RowsSeen(NamedTuple):
    """The metadata slots of one side as operations on their own device.

    Attributes:
        first, rows, context: int64 ``[B]``: a request's first row, its rows and its context after
            the step; all zero where a request row is not in use.
        block_ends: int64 ``[T]``, where the media block of each row ends; None for causal models.
        window: positions that a row sees back, itself included; 0 is all.
    """

    first: Tensor
    rows: Tensor
    context: Tensor
    block_ends: Tensor | None
    window: int

    @classmethod
    def of(cls, attention_rows: Tensor, block_bounds: Tensor | None, window: int) -> RowsSeen:
        """Views of ``attention_rows`` ``[B, 4]`` and ``block_bounds`` ``[T, 2]``."""
        first, rows, context, _ = attention_rows.unbind(1)
        return cls(
            first, rows, context, None if block_bounds is None else block_bounds[:, 1], window
        )

    def used(self, request: slice, keys: int) -> Tensor:
        """Bool ``[n, keys]``: which positions any row of these requests sees.

        What lies elsewhere in a page, or in the sink, is nobody's, and may be anything.
        """
        key = torch.arange(keys, device=self.first.device)
        context = self.context[request, None]
        used = key < context
        if self.window:
            used &= key > context - self.rows[request, None] - self.window
        return used

    def last(self, request: slice, keys: int) -> Tensor:
        """Bool ``[n, keys]``: which positions the last row of each of these requests sees."""
        key = torch.arange(keys, device=self.first.device)
        context = self.context[request, None]
        seen = key < context
        if self.window:
            seen &= key >= context - self.window
        return seen & (self.rows[request, None] > 0)

    def owned(self, request: slice, n_rows: int) -> Tensor:
        """Bool ``[n_rows, n]``: which of these requests each row belongs to; none for padding."""
        row = torch.arange(n_rows, device=self.first.device).unsqueeze(1)
        first = self.first[request]
        return (row >= first) & (row < first + self.rows[request])

    def each(self, request: slice, n_rows: int, keys: int) -> Tensor:
        """Bool ``[n_rows, n, keys]``: which positions of which of these requests a row sees."""
        row = torch.arange(n_rows, device=self.first.device).unsqueeze(1)
        key = torch.arange(keys, device=self.first.device)
        # The position that a row would have in each request; what it means is up to `owned`.
        own = row - self.first[request] + self.context[request] - self.rows[request]
        own = own.unsqueeze(2)
        ends = own + 1
        if self.block_ends is not None:
            ends = torch.maximum(ends, self.block_ends[:n_rows].view(-1, 1, 1))
        seen = key < ends
        if self.window:
            seen &= key > own - self.window
        return seen & self.owned(request, n_rows).unsqueeze(2)
