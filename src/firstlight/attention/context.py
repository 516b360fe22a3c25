"""The handle that a body's attention layers get: paged memory plus this batch's metadata slots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.attention.cpu import NO_WINDOW
from firstlight.attention.layer import AttentionLayer
from firstlight.attention.op import attention_op
from firstlight.memory.pool import KVPool


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """Attention over a :class:`KVPool`; one instance per bucket, since the views are its length.

    Attributes:
        write_locations: int64 ``[T]``; page_table: int32 ``[B, max_pages]``;
        attention_rows: int64 ``[B, 4]``: views of slots, see :mod:`firstlight.attention.metadata`.
    """

    pool: KVPool
    write_locations: Tensor
    page_table: Tensor
    attention_rows: Tensor

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the rows' keys and values and attend.

        Args:
            q: ``[T, heads, key_dim]``. k, v: ``[T, kv_heads, key_dim | value_dim]``.

        Returns:
            ``[T, heads, value_dim]``, zero on rows that belong to no request.
        """
        return self._attend(layer, q, k, v, last_only=False)

    def attend_last(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The same for the last row of each request alone: q is ``[B, heads, key_dim]``.

        Returns:
            ``[B, heads, value_dim]``, zero for request rows that are not in use.
        """
        return self._attend(layer, q, k, v, last_only=True)

    def last_rows(self) -> Tensor:
        """int64 ``[B]``: the row of each request's last position; 0 for rows that are not in use.

        Computed from the slot by operations that a graph records.
        """
        rows = self.attention_rows
        return (rows[:, 0] + rows[:, 1] - 1).clamp(min=0)

    def _attend(
        self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor, *, last_only: bool
    ) -> Tensor:
        out = torch.empty(*q.shape[:2], v.shape[2], dtype=q.dtype, device=q.device)
        attention_op()(
            q,
            k,
            v,
            self.pool.keys[layer.index],
            self.pool.values[layer.index],
            self.write_locations,
            self.page_table,
            self.attention_rows,
            out,
            layer.scale,
            layer.window or NO_WINDOW,
            last_only,
        )
        return out
