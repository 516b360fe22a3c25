"""The CPU kernel of ``firstlight::attention``; also the reference for other devices."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from firstlight.attention.chunk import Visibility, attend_chunk

NO_WINDOW = 0


def attention_(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_pool: Tensor,
    v_pool: Tensor,
    write_locations: Tensor,
    page_table: Tensor,
    attention_rows: Tensor,
    block_bounds: Tensor | None,
    out: Tensor,
    scale: float,
    window: int,
    last_only: bool,
) -> None:
    """Store ``k``, ``v`` and write ``softmax(scale * q k^T) v`` over each request's context.

    Args:
        q: ``[T, heads, key_dim]``, or with ``last_only`` ``[B, ...]``: request i's last row is row
            i. k, v: ``[T, kv_heads, key_dim | value_dim]``.
        k_pool, v_pool: ``[pages, page_size, kv_heads, dim]``; written at ``write_locations``.
        write_locations, page_table, attention_rows, block_bounds: see
            :mod:`firstlight.attention.metadata`.
        out: ``[T | B, heads, value_dim]``; rows of no request become zero.
        window: a query sees this many positions back, itself included; 0 is all of them.
    """
    k_flat, v_flat = k_pool.flatten(0, 1), v_pool.flatten(0, 1)
    k_flat.index_copy_(0, write_locations, k)
    v_flat.index_copy_(0, write_locations, v)
    memory = _Memory(k_pool, v_pool, k_flat.transpose(0, 1), v_flat.transpose(0, 1), page_table)
    kv_heads = k.shape[1]
    # The heads of a group stand beside the head whose keys they share: [rows, kv_heads, group, dim]
    grouped, result = (t.unflatten(1, (kv_heads, -1)) for t in (q, out))
    end = 0
    singles: list[Tensor] = []
    # Reading the metadata here is this kernel's own work on the host, not a sync: it runs on a CPU.
    for i, (first, rows, context, run) in enumerate(attention_rows.tolist()):
        if rows == 0:
            break
        # With a window, `run` is where the first position that the first row sees lies.
        seen = max(context - rows - window + 1, 0) if window else 0
        if rows == 1 or last_only:
            at = end
            begin = max(context - window, 0) if window else 0
            keys, values = memory.read(i, begin, context, run + begin - seen if run >= 0 else run)
            # One query sees every key: no mask. Its heads stand where the queries of a chunk do,
            # so that nothing has to be expanded (2-6x faster than enable_gqa in bf16).
            query = grouped.narrow(0, at, 1)
            singles.append(scaled_dot_product_attention(query, keys, values, scale=scale))
            end = at + 1
            continue
        _write(singles, result, first)
        end = first + rows
        keys, values = memory.read(i, seen, context, run)
        bounds = None if block_bounds is None else block_bounds.narrow(0, first, rows)
        attend_chunk(
            grouped.narrow(0, first, rows),
            keys,
            values,
            result.narrow(0, first, rows),
            scale,
            Visibility(context - rows - seen, window, seen, bounds),
        )
    _write(singles, result, end)
    if end < out.shape[0]:
        out[end:].zero_()


class _Memory(NamedTuple):
    """One layer's keys and values: pools by page, and by head ``[kv_heads, slots, dim]``."""

    key_pages: Tensor
    value_pages: Tensor
    keys: Tensor
    values: Tensor
    page_table: Tensor

    def read(self, request: int, begin: int, end: int, slot: int) -> tuple[Tensor, Tensor]:
        """Keys and values of positions ``[begin, end)``: ``[1, kv_heads, end - begin, dim]``.

        Views of the pool if they lie in one run, beginning at token slot ``slot``. Else (slot < 0)
        their pages are gathered, whole pages at a time.
        """
        n = end - begin
        if slot >= 0:
            return (
                self.keys.narrow(1, slot, n).unsqueeze(0),
                self.values.narrow(1, slot, n).unsqueeze(0),
            )
        page_size = self.key_pages.shape[1]
        low, high = begin // page_size, -(-end // page_size)
        pages = self.page_table[request, low:high]
        skip = begin - low * page_size
        keys, values = (
            pool.index_select(0, pages).flatten(0, 1).narrow(0, skip, n).transpose(0, 1)
            for pool in (self.key_pages, self.value_pages)
        )
        return keys.unsqueeze(0), values.unsqueeze(0)


def _write(singles: list[Tensor], out: Tensor, end: int) -> None:
    """Move the results of single queries to the rows before ``end``."""
    if singles:
        torch.cat(singles, out=out.narrow(0, end - len(singles), len(singles)))
        singles.clear()
