"""Attention of the last positions of one context: which keys each row sees."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class Visibility(NamedTuple):
    """What rows of a chunk see of its keys, which are those of consecutive positions.

    Attributes:
        before: keys that precede the chunk's first row.
        window: positions that a row sees back, itself included; 0 is all.
        first: position of the first key.
        bounds: int64 ``[rows, 2]``, the positions of each row's media block, or None.
    """

    before: int
    window: int
    first: int
    bounds: Tensor | None

    def mask(self, rows: int) -> Tensor | None:
        """Bool ``[rows, before + rows]``: which keys each row sees; None if that is causal."""
        n = self.before + rows
        if self.bounds is None and self.before == 0 and not 0 < self.window < n:
            return None
        key = torch.arange(n)
        row = torch.arange(self.before, n).unsqueeze(1)
        seen = key <= row
        if self.bounds is not None:
            at = key + self.first
            low, high = self.bounds.split(1, dim=1)
            seen |= (at >= low) & (at < high)
        if 0 < self.window < n:
            seen &= key > row - self.window
        return seen


def attend_chunk(
    q: Tensor, keys: Tensor, values: Tensor, out: Tensor, scale: float, sees: Visibility
) -> None:
    """Write ``softmax(scale * q k^T) v`` of the chunk's rows.

    Args:
        q: ``[rows, kv_heads, group, key_dim]``: the heads of a group share keys.
        keys, values: ``[1, kv_heads, n, dim]``; the last ``rows`` are the chunk's own.
        out: ``[rows, kv_heads, group, value_dim]``.
    """
    mask = sees.mask(q.shape[0])
    result = scaled_dot_product_attention(
        q.flatten(1, 2).transpose(0, 1).unsqueeze(0),
        keys,
        values,
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=q.shape[2] > 1,
    )
    out.copy_(result[0].transpose(0, 1).unflatten(1, out.shape[1:3]))
