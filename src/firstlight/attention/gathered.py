"""``firstlight::attention`` in plain torch operations that run on any device and in any graph.

Nothing of the metadata is read on the host, so that a CUDA graph can hold it and a step need not
wait. The price: every shape is that of the slots. Keys are gathered for as many positions as a
page table row has, for every request row, used or not; and a row's scores are computed against all
requests that are taken together with its own. It is what runs where no library's kernel does, and
what those are compared with.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from firstlight.attention.layer_memory import LayerMemory
from firstlight.attention.rows_seen import RowsSeen

# Entries of a mask, and elements of gathered keys, that one call may have: 256 MiB of a mask.
MOST_SCORES = 1 << 28
MOST_GATHERED = 1 << 28


def attention_gathered_(
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
    """What :func:`firstlight.attention.cpu.attention_` does, with the same arguments.

    Equal to it up to rounding: masked scores are added up in another order.
    """
    memory = LayerMemory.of(k_pool, v_pool, page_table)
    memory.store(write_locations, k, v)
    queries, result = (t.view(t.shape[0], k.shape[1], -1, t.shape[2]) for t in (q, out))
    seen = RowsSeen.of(attention_rows, block_bounds, window)
    if last_only:
        _attend_last(memory, queries, result, seen, scale)
    else:
        _attend_all(memory, queries, result, seen, scale)


def _attend_last(memory: LayerMemory, q: Tensor, out: Tensor, seen: RowsSeen, scale: float) -> None:
    """One row a request, ``[B, kv_heads, group, dim]``: its heads stand where queries do."""
    keys_each = memory.page_table.shape[1] * memory.page_size
    for requests in _groups(q.shape[0], _room(memory, keys_each)):
        keys, values = _gather(memory, requests, seen.used(requests, keys_each))
        mask = seen.last(requests, keys_each).view(-1, 1, 1, keys_each)
        part = scaled_dot_product_attention(q[requests], keys, values, attn_mask=mask, scale=scale)
        live = (seen.rows[requests] > 0).view(-1, 1, 1, 1)
        out[requests].copy_(torch.where(live, part, 0))


def _attend_all(memory: LayerMemory, q: Tensor, out: Tensor, seen: RowsSeen, scale: float) -> None:
    """All rows, ``[T, kv_heads, group, dim]``, against some requests' keys at a time."""
    out.zero_()
    n_rows, heads, group, _ = q.shape
    keys_each = memory.page_table.shape[1] * memory.page_size
    together = min(_room(memory, keys_each), max(MOST_SCORES // max(n_rows * keys_each, 1), 1))
    for requests in _groups(seen.rows.shape[0], together):
        keys, values = _gather(memory, requests, seen.used(requests, keys_each))
        # The requests' keys stand behind each other: [kv_heads, group, n * keys, dim].
        k, v = (
            t.transpose(0, 1).reshape(heads, 1, -1, t.shape[3]).expand(-1, group, -1, -1)
            for t in (keys, values)
        )
        mask = seen.each(requests, n_rows, keys_each).view(n_rows, -1)
        part = scaled_dot_product_attention(
            q.permute(1, 2, 0, 3), k, v, attn_mask=mask, scale=scale
        )
        mine = seen.owned(requests, n_rows).any(1).view(-1, 1, 1, 1)
        # A row that sees nothing of this part is undefined in it.
        torch.where(mine, part.permute(2, 0, 1, 3), out, out=out)


def _gather(memory: LayerMemory, requests: slice, used: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values ``[n, kv_heads, keys, dim]``; zero where nobody sees them.

    A score that is masked is still computed, and a NaN in the sink would spread.
    """
    pages = memory.page_table[requests]
    shown = used.view(used.shape[0], 1, used.shape[1], 1)
    found = []
    for flat in (memory.keys, memory.values):
        _, heads, dim = flat.shape
        by_page = flat.transpose(0, 1).view(heads, -1, memory.page_size, dim)
        rows = by_page.index_select(1, pages.reshape(-1)).view(heads, len(pages), -1, dim)
        found.append(torch.where(shown, rows.transpose(0, 1), 0))
    return found[0], found[1]


def _room(memory: LayerMemory, keys_each: int) -> int:
    """How many requests' keys may be gathered at a time."""
    _, heads, dim = memory.keys.shape
    return max(MOST_GATHERED // max(keys_each * heads * max(dim, memory.values.shape[2]), 1), 1)


def _groups(n: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]
