"""Attention over pages in one kernel, for models and machines that no library's kernel serves.

The softmax is taken in one pass over the keys with a running maximum (Milakov and Gimelshein 2018,
arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). A request's rows read its own pages alone, of
any size; all that changes comes from slots. Keys are not split over programs, and a row's result
does not depend on the rows beside it.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from torch import Tensor

from firstlight.gpu.rows import store_rows

_ROWS = 64
_KEYS = 64
_LEAST = 16  # what a multiplication of tiles takes at least on each axis


@triton.jit
def _mix(
    own, keys, values, pages, k_slot, v_slot, position, stop, live, low, high, scale,
    window: tl.constexpr, page_size: tl.constexpr, key_dim: tl.constexpr, value_dim: tl.constexpr,
    key_block: tl.constexpr, value_block: tl.constexpr, row_block: tl.constexpr,
    keys_block: tl.constexpr,
):  # fmt: skip
    """Weighted sums of values of positions [low, high) for rows that lie at ``position``."""
    key_column, value_column = tl.arange(0, key_block), tl.arange(0, value_block)
    largest = tl.full([row_block], -float("inf"), tl.float32)
    total = tl.zeros([row_block], tl.float32)
    mixed = tl.zeros([row_block, value_block], tl.float32)
    for begin in range(low, high, keys_block):
        key = begin + tl.arange(0, keys_block)
        there = key < high
        page = tl.load(pages + key // page_size, mask=there, other=0)
        slot = page.to(tl.int64) * page_size + key % page_size
        k = tl.load(
            keys + slot[None, :] * k_slot + key_column[:, None],
            mask=there[None, :] & (key_column[:, None] < key_dim), other=0.0,
        )  # fmt: skip
        seen = (key[None, :] < stop[:, None]) & live[:, None] & there[None, :]
        if window > 0:
            seen = seen & (key[None, :] > position[:, None] - window)
        scores = tl.dot(own, k, input_precision="ieee") * scale
        scores = tl.where(seen, scores, -float("inf"))
        now = tl.maximum(largest, tl.max(scores, axis=1))
        # Where nothing was seen yet both are minus infinity, whose difference is no number.
        base = tl.where(now == -float("inf"), 0.0, now)
        weights, kept = tl.exp(scores - base[:, None]), tl.exp(largest - base)
        v = tl.load(
            values + slot[:, None] * v_slot + value_column[None, :],
            mask=there[:, None] & (value_column[None, :] < value_dim), other=0.0,
        )  # fmt: skip
        total = total * kept + tl.sum(weights, axis=1)
        mixed = mixed * kept[:, None]
        mixed += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = now
    return mixed / tl.where(live, total, 1.0)[:, None]


@triton.jit
def _attend(
    q, keys, values, page_table, attention_rows, block_bounds, out,
    q_row, q_head, k_slot, k_head, v_slot, v_head, out_row, out_head, max_pages, scale,
    window: tl.constexpr, page_size: tl.constexpr, group: tl.constexpr,
    last_only: tl.constexpr, blocks: tl.constexpr,
    key_dim: tl.constexpr, value_dim: tl.constexpr,
    key_block: tl.constexpr, value_block: tl.constexpr,
    row_block: tl.constexpr, keys_block: tl.constexpr,
):  # fmt: skip
    request = tl.program_id(0).to(tl.int64)
    first = tl.load(attention_rows + request * 4)
    rows = tl.load(attention_rows + request * 4 + 1)
    context = tl.load(attention_rows + request * 4 + 2)
    start = tl.program_id(1) * row_block
    number = start + tl.arange(0, row_block)
    if last_only:
        # The rows of a program are the heads of a group: they read the same keys once.
        kv_head = tl.program_id(2).to(tl.int64)
        live, head = number < tl.where(rows > 0, group, 0), kv_head * group + number
        row, position, lowest = request + number * 0, context - 1 + number * 0, context - 1
        n = rows
    else:
        kv_head = (tl.program_id(2) // group).to(tl.int64)
        live, head = number < rows, tl.program_id(2) + number * 0
        row, position, lowest = first + number, context - rows + number, context - rows + start
        n = rows - start
    if n > 0:
        stop = position + 1
        if blocks:
            stop = tl.maximum(stop, tl.load(block_bounds + row * 2 + 1, mask=live, other=0))
        low = lowest * 0
        if window > 0:
            low = tl.maximum(lowest - window + 1, 0)
        column = tl.arange(0, key_block)
        own = tl.load(
            q + row[:, None] * q_row + head[:, None] * q_head + column[None, :],
            mask=live[:, None] & (column[None, :] < key_dim), other=0.0,
        )  # fmt: skip
        mixed = _mix(
            own, keys + kv_head * k_head, values + kv_head * v_head,
            page_table + request * max_pages, k_slot, v_slot, position, stop, live, low,
            tl.max(tl.where(live, stop, 0), axis=0), scale, window, page_size,
            key_dim, value_dim, key_block, value_block, row_block, keys_block,
        )  # fmt: skip
        column = tl.arange(0, value_block)
        tl.store(
            out + row[:, None] * out_row + head[:, None] * out_head + column[None, :],
            mixed.to(out.dtype.element_ty), mask=live[:, None] & (column[None, :] < value_dim),
        )  # fmt: skip


def attention_triton_(
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

    Equal to it up to rounding: sums are taken in another order, and weights are rounded to the
    dtype of the values before they are multiplied with them.
    """
    keys, values = (pool.view(-1, pool.shape[2], pool.shape[3]) for pool in (k_pool, v_pool))
    out.zero_()  # rows of no request are nobody's to write
    requests, heads, kv_heads = len(attention_rows), q.shape[1], k.shape[1]
    group = heads // kv_heads
    parts = triton.cdiv(q.shape[0], _ROWS)
    grid = (requests, 1, kv_heads) if last_only else (requests, parts, heads)
    key_dim, value_dim = q.shape[2], v.shape[2]
    with torch.cuda.device(q.device) if q.is_cuda else nullcontext():
        store_rows(k, v, k_pool, v_pool, write_locations)
        _attend[grid](
            q, keys, values, page_table, attention_rows,
            attention_rows if block_bounds is None else block_bounds, out,
            q.stride(0), q.stride(1), keys.stride(0), keys.stride(1),
            values.stride(0), values.stride(1), out.stride(0), out.stride(1),
            page_table.stride(0), scale, window, k_pool.shape[1], group,
            last_only, block_bounds is not None and not last_only,
            key_dim, value_dim, _tile(key_dim), _tile(value_dim),
            _tile(group) if last_only else _ROWS, _KEYS,
        )  # fmt: skip


def _tile(n: int) -> int:
    return max(int(triton.next_power_of_2(n)), _LEAST)
