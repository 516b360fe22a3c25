"""Rows written to places: keys and values into pages, text rows into a wide slot."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

_COLUMNS = 1024


@triton.jit
def _store(
    k, v, k_pool, v_pool, locations,
    k_row, k_head, v_row, v_head, k_slot, k_pool_head, v_slot, v_pool_head,
    key_dim: tl.constexpr, value_dim: tl.constexpr,
    key_block: tl.constexpr, value_block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    slot = tl.load(locations + row)
    column = tl.arange(0, key_block)
    key = tl.load(k + row * k_row + head * k_head + column, mask=column < key_dim)
    tl.store(k_pool + slot * k_slot + head * k_pool_head + column, key, mask=column < key_dim)
    column = tl.arange(0, value_block)
    value = tl.load(v + row * v_row + head * v_head + column, mask=column < value_dim)
    tl.store(v_pool + slot * v_slot + head * v_pool_head + column, value, mask=column < value_dim)


def store_rows(k: Tensor, v: Tensor, k_pool: Tensor, v_pool: Tensor, locations: Tensor) -> None:
    """Put keys and values at token slots, in one launch.

    Equal to :meth:`firstlight.attention.layer_memory.LayerMemory.store`; of rows that go to the
    same slot, as padding rows do, any one wins.

    Args:
        k, v: ``[T, kv_heads, dim]``. k_pool, v_pool: ``[pages, page_size, kv_heads, dim]``, in any
            order in memory in which the tokens of consecutive pages follow each other.
        locations: int64 ``[T]``.
    """
    rows, heads, key_dim = k.shape
    value_dim = v.shape[2]
    flat_k, flat_v = (p.view(-1, p.shape[2], p.shape[3]) for p in (k_pool, v_pool))
    _launch(
        _store, (rows, heads), k, v, flat_k, flat_v, locations,
        k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        flat_k.stride(0), flat_k.stride(1), flat_v.stride(0), flat_v.stride(1),
        key_dim, value_dim, triton.next_power_of_2(key_dim), triton.next_power_of_2(value_dim),
    )  # fmt: skip


@triton.jit
def _scatter(
    into, rows, places, into_row, rows_row, width, total,
    block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    place = tl.load(places + row)
    given = tl.load(rows + row * rows_row + column, mask=column < width, other=0.0)
    tl.store(into + place * into_row + column, given, mask=column < total)


def scatter_rows(into: Tensor, rows: Tensor, places: Tensor) -> None:
    """Put ``rows`` at ``places``, and zeros in the columns that they do not fill.

    Equal to what :func:`firstlight.engine.merge.merge` does for text rows, run by run.

    Args:
        into: ``[T, total]``. rows: ``[n, width]``, at most as wide. places: int64 ``[n]``.
    """
    n, width = rows.shape
    total = into.shape[1]
    grid = (n, triton.cdiv(total, _COLUMNS))
    if n:
        _launch(
            _scatter, grid, into, rows, places, into.stride(0), rows.stride(0), width, total,
            _COLUMNS,
        )  # fmt: skip


def _launch(kernel: Any, grid: tuple[int, int], *arguments: Any) -> None:
    if all(grid):
        kernel[grid](*arguments)
