"""Attention of a chunk: the last positions of one context, of which each sees its own keys."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

# Rows are taken this many at a time: torch's kernel skips the keys after a row in blocks of 512, so
# that a chunk taken whole computes up to twice the scores.
TILE = 128
# Keys before a tile that all its rows see, times rows, from which it pays to attend to them apart:
# without a mask and without expanding them to all heads. Below, two calls cost more than one mask.
APART = 16384


class Sight(NamedTuple):
    """What the rows of a chunk see of its keys, which are those of consecutive positions.

    Attributes:
        before: keys that precede the chunk's first row.
        window: positions that a row sees back, itself included; 0 is all.
        ends: int64 ``[rows, 1]``, the first key that each row does not see: the end of its media
            block, or the key behind its own. None for causal models.
    """

    before: int
    window: int
    ends: Tensor | None

    def seen(self, rows: range) -> range:
        """The keys that these rows see, from the first that one of them does."""
        first, end = self.before + rows.start, self.before + rows.stop
        if self.ends is not None:
            end = int(self.ends[rows.start : rows.stop].max())
        return range(max(first - self.window + 1, 0) if self.window else 0, end)

    def mask(self, rows: range, keys: range) -> Tensor:
        """Bool ``[rows, keys]``: which of these keys each of these rows sees."""
        key, own = torch.arange(keys.start, keys.stop), self._own(rows)
        seen = key <= own if self.ends is None else key < self.ends[rows.start : rows.stop]
        if self.window:
            seen &= key > own - self.window
        return seen

    def is_cut(self, rows: range) -> bool:
        """Whether the window hides from one of these rows a key before it."""
        return 0 < self.window < self.before + rows.stop

    def is_causal(self, rows: range) -> bool:
        """Whether none of these rows sees a key behind its own."""
        if self.ends is None:
            return True
        return not bool((self.ends[rows.start : rows.stop] > self._own(rows) + 1).any())

    def _own(self, rows: range) -> Tensor:
        first = self.before + rows.start
        return torch.arange(first, first + len(rows)).unsqueeze(1)


class _Tile(NamedTuple):
    """Queries ``[rows, kv_heads, group, dim]``; keys and values ``[1, kv_heads, n, dim]``."""

    q: Tensor
    keys: Tensor
    values: Tensor
    scale: float


def attend_chunk(
    q: Tensor, keys: Tensor, values: Tensor, out: Tensor, scale: float, sight: Sight
) -> None:
    """Write ``softmax(scale * q k^T) v`` of the chunk's rows.

    Args:
        q: ``[rows, kv_heads, group, key_dim]``: the heads of a group share keys.
        keys, values: ``[1, kv_heads, n, dim]``; the last ``rows`` are the chunk's own.
        out: ``[rows, kv_heads, group, value_dim]``.
    """
    for start in range(0, len(q), TILE):
        rows = range(start, min(start + TILE, len(q)))
        tile = _Tile(q[rows.start : rows.stop], keys, values, scale)
        out[rows.start : rows.stop].permute(1, 2, 0, 3).copy_(_attend(tile, sight, rows))


def _attend(tile: _Tile, sight: Sight, rows: range) -> Tensor:
    """``[kv_heads, group, rows, value_dim]``."""
    seen, first = sight.seen(rows), sight.before + rows.start
    if sight.is_cut(rows):
        return _attend_masked(tile, seen, sight.mask(rows, seen))
    causal = sight.is_causal(rows)
    if first == 0:
        return _attend_masked(tile, seen, None if causal else sight.mask(rows, seen))
    # torch gives no log-sum-exp, which merging needs, where keys and values differ in width.
    if first * len(rows) < APART or tile.keys.shape[3] != tile.values.shape[3]:
        return _attend_masked(tile, seen, sight.mask(rows, seen))
    own = range(first, seen.stop)
    return _attend_apart(tile, own, None if causal else sight.mask(rows, own))


def _attend_masked(tile: _Tile, keys: range, mask: Tensor | None) -> Tensor:
    """One call over these keys, with a bool mask ``[rows, keys]``; causal if that is None."""
    group = tile.q.shape[2]
    return scaled_dot_product_attention(
        tile.q.permute(1, 2, 0, 3),
        _spread(tile.keys, keys, group),
        _spread(tile.values, keys, group),
        attn_mask=mask,
        is_causal=mask is None,
        scale=tile.scale,
    )


def _attend_apart(tile: _Tile, own: range, mask: Tensor | None) -> Tensor:
    """The keys before ``own``, which all rows see, and ``own`` in two calls, then merged.

    With ``lse`` the logarithm of the sum of a part's exponentiated scores, a part's share of the
    result is ``exp(lse)`` over the sum of both (Milakov and Gimelshein 2018, arXiv:1805.02867).
    """
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    rows, kv_heads, group, dim = tile.q.shape
    before = range(own.start)
    # Rows and the heads of a group are one axis here: nobody's keys are expanded.
    folded = tile.q.transpose(0, 1).reshape(kv_heads, 1, rows * group, dim)
    far, far_lse = flash(
        folded, _spread(tile.keys, before, 1), _spread(tile.values, before, 1), scale=tile.scale
    )
    near, near_lse = flash(
        tile.q.permute(1, 2, 0, 3),
        _spread(tile.keys, own, group),
        _spread(tile.values, own, group),
        is_causal=mask is None,
        attn_mask=None if mask is None else _additive(mask, tile.q.dtype),
        scale=tile.scale,
    )
    far = far.view(kv_heads, rows, group, dim).transpose(1, 2)
    far_lse = far_lse.view(kv_heads, rows, group).transpose(1, 2)
    share = torch.sigmoid(near_lse - far_lse).unsqueeze(-1).to(far.dtype)
    return torch.lerp(far, near, share)


def _spread(x: Tensor, keys: range, group: int) -> Tensor:
    """``[kv_heads, group, keys, dim]`` of ``[1, kv_heads, n, dim]``: a group reads the same."""
    _, heads, _, dim = x.shape
    _, by_head, by_key, by_column = x.stride()
    at = x.storage_offset() + keys.start * by_key
    return x.as_strided((heads, group, len(keys), dim), (by_head, 0, by_key, by_column), at)


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(mask.shape, dtype=dtype).masked_fill_(~mask, -torch.inf)
