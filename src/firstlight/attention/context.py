"""The handle that a body's attention layers get: paged memory plus this batch's metadata slots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from firstlight.attention.cpu import NO_WINDOW
from firstlight.attention.layer import AttentionLayer
from firstlight.attention.op import attention_op
from firstlight.errors import SlotError
from firstlight.memory.pool import KVPool


@dataclass(frozen=True, slots=True)
class SideViews:
    """Views of one side's slots, see :mod:`firstlight.attention.metadata`.

    Attributes:
        write_locations: int64 ``[T]``; page_table: int32 ``[B, max_pages]``;
        attention_rows: int64 ``[B, 4]``.
    """

    write_locations: Tensor
    page_table: Tensor
    attention_rows: Tensor


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """Attention over a :class:`KVPool`; one instance per bucket, since the views are its length.

    Attributes:
        sides: one a side of the pool's layout, in its order.
        block_bounds: int64 ``[T, 2]`` for prefix-LM models, else None.
        op: the operation, or another one with its arguments.
    """

    pool: KVPool
    sides: Sequence[SideViews]
    block_bounds: Tensor | None = None
    op: Any = field(default_factory=attention_op)

    def attend(self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Store the rows' keys and values and attend.

        Args:
            q: ``[T, heads, key_dim]``. k, v: ``[T, kv_heads, key_dim | value_dim]``.

        Returns:
            ``[T, heads, value_dim]``, zero on rows that belong to no request.

        Raises:
            SlotError: the layer's window is not that of its side.
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
        rows = self.sides[0].attention_rows
        return (rows[:, 0] + rows[:, 1] - 1).clamp(min=0)

    def _attend(
        self, layer: AttentionLayer, q: Tensor, k: Tensor, v: Tensor, *, last_only: bool
    ) -> Tensor:
        side = self.pool.layout.side_of_layer[layer.index]
        window = self.pool.layout.sides[side].window
        # A window that no context can outgrow is none: such a layer lies on the full side.
        if window is not None and window != layer.window:
            raise SlotError(
                f"layer {layer.index} asks for a window of {layer.window}; its keys lie on the "
                f"side {self.pool.layout.sides[side].name}"
            )
        views = self.sides[side]
        out = torch.empty(*q.shape[:2], v.shape[2], dtype=q.dtype, device=q.device)
        self.op(
            q,
            k,
            v,
            self.pool.keys[layer.index],
            self.pool.values[layer.index],
            views.write_locations,
            views.page_table,
            views.attention_rows,
            self.block_bounds,
            out,
            layer.scale,
            window or NO_WINDOW,
            last_only,
        )
        return out
