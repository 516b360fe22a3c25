"""The CPU kernel of ``firstlight::attention``; also the reference for other devices."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from firstlight.attention.chunk import Sight, attend_chunk
from firstlight.attention.layer_memory import LayerMemory

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
    memory = LayerMemory.of(k_pool, v_pool, page_table)
    memory.store(write_locations, k, v)
    # Heads that share keys stand beside each other: [rows, kv_heads, group, dim].
    queries, result = (t.view(t.shape[0], k.shape[1], -1, t.shape[2]) for t in (q, out))
    end = _attend(memory, queries, result, attention_rows, block_bounds, scale, window, last_only)
    if end < out.shape[0]:
        out[end:].zero_()


def _attend(
    memory: LayerMemory,
    q: Tensor,
    out: Tensor,
    attention_rows: Tensor,
    block_bounds: Tensor | None,
    scale: float,
    window: int,
    last_only: bool,
) -> int:
    """Attention of all requests, one after another; returns how many rows they have."""
    end, singles = 0, list[Tensor]()
    # Reading the metadata here is this kernel's own work on the host, not a sync: it runs on a CPU.
    for i, (first, rows, context, run) in enumerate(attention_rows.tolist()):
        if rows == 0:
            break
        seen = max(context - rows - window + 1, 0) if window else 0
        if rows == 1 or last_only:
            # A last row sees all there is, but in a chunk with a window not what the first one did.
            begin = max(context - window, 0) if window else 0
            keys, values = memory.read(i, begin, context, run + begin - seen if run >= 0 else run)
            # It sees every key: no mask. Its heads stand where the queries of a chunk do, so that
            # no key is expanded (measured 2-6x faster than `enable_gqa` in bf16).
            query = q[end : end + 1]
            singles.append(scaled_dot_product_attention(query, keys, values, scale=scale))
            end += 1
            continue
        _write(singles, out, first)
        end = first + rows
        keys, values = memory.read(i, seen, context, run)
        # The keys of a block before a row are seen by it anyway, or hidden by the window.
        ends = None if block_bounds is None else block_bounds[first:end, 1:] - seen
        sight = Sight(context - rows - seen, window, ends)
        attend_chunk(q[first:end], keys, values, out[first:end], scale, sight)
    _write(singles, out, end)
    return end


def _write(singles: list[Tensor], out: Tensor, end: int) -> None:
    """Move the results of single queries to the rows before ``end``, all at once."""
    if singles:
        torch.cat(singles, out=out.narrow(0, end - len(singles), len(singles)))
        singles.clear()
