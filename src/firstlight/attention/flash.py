"""``firstlight::attention`` by kernels of the FlashAttention family, which read pages themselves.

Both entry points take cumulative row counts, used lengths and a page table as tensors on the
device, and bounds of the longest rows and keys as numbers. The bounds are those of the slots, so
nothing is read on the host and a CUDA graph may hold the call. A causal mask is aligned to the last
key, which is what a chunk behind a prefix needs.

* torch's own ``torch.nn.attention.varlen`` with a ``block_table``: pages of a multiple of 256, keys
  as wide as values.
* FlashAttention-3's ``flash_attn_with_kvcache``: pages of any size, values of another width than
  keys, Hopper GPUs. It is an optional package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from firstlight.attention.layer_memory import LayerMemory
from firstlight.errors import SlotError


class Lengths(NamedTuple):
    """What the kernels are told of a batch, int32 on the device.

    Attributes:
        cumulative_rows: ``[B + 1]``: requests' rows, added up; equal neighbours have none.
        cumulative_keys: ``[B + 1]``: their contexts, added up.
        keys: ``[B]``: each context, 0 where a request row is not in use.
    """

    cumulative_rows: Tensor
    cumulative_keys: Tensor
    keys: Tensor


def lengths_of(attention_rows: Tensor, *, last_only: bool) -> Lengths:
    """From the slot ``attention_rows`` ``[B, 4]``; with ``last_only`` each request has one row."""
    rows, keys = attention_rows[:, 1], attention_rows[:, 2]
    if last_only:
        rows = rows.clamp(max=1)
    both = pad(torch.stack([rows, keys]).cumsum(1), (1, 0)).int()
    return Lengths(both[0], both[1], keys.int())


@dataclass(frozen=True, slots=True)
class Call:
    """One attention call, in the library's terms.

    Attributes:
        q, out: ``[rows, heads, dim]``. keys, values: the layer's pools
            ``[pages, page_size, kv_heads, dim]``.
        max_rows, max_keys: what no request exceeds.
        left: positions seen to the left of a row's own; -1 is all.
    """

    q: Tensor
    keys: Tensor
    values: Tensor
    page_table: Tensor
    out: Tensor
    lengths: Lengths
    max_rows: int
    max_keys: int
    scale: float
    left: int


Kernel = Callable[[Call], None]


def attention_flash_(
    kernel: Kernel,
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
    """What :func:`firstlight.attention.cpu.attention_` does, by ``kernel``.

    Raises:
        SlotError: the batch has media blocks, which these kernels have no mask for.
    """
    if block_bounds is not None:
        raise SlotError("FlashAttention kernels have no mask for media blocks")
    LayerMemory.of(k_pool, v_pool, page_table).store(write_locations, k, v)
    out.zero_()  # the kernel writes the rows of requests alone
    kernel(
        Call(
            q=q,
            keys=k_pool,
            values=v_pool,
            page_table=page_table,
            out=out,
            lengths=lengths_of(attention_rows, last_only=last_only),
            max_rows=1 if last_only else q.shape[0],
            max_keys=page_table.shape[1] * k_pool.shape[1],
            scale=scale,
            left=window - 1 if window else -1,
        )
    )


def torch_varlen(call: Call) -> None:
    """torch's in-tree FlashAttention-2, through its public function.

    The kernel writes into ``out``. Keys are not split over blocks of threads (``num_splits=1``):
    the result of a request then does not depend on its neighbours, which proofs rely on.
    """
    from torch.nn.attention import varlen

    varlen.varlen_attn_out(
        call.out,
        call.q,
        call.keys,
        call.values,
        call.lengths.cumulative_rows,
        call.lengths.cumulative_keys,
        call.max_rows,
        call.max_keys,
        scale=call.scale,
        window_size=(call.left, 0),
        enable_gqa=True,
        seqused_k=call.lengths.keys,
        block_table=call.page_table,
        num_splits=1,
    )


def flash_attention_3(call: Call) -> None:
    """FlashAttention-3's own package, ``flash_attn_interface``."""
    function: Any = import_module("flash_attn_interface").flash_attn_with_kvcache
    result = function(
        call.q,
        call.keys,
        call.values,
        cache_seqlens=call.lengths.keys,
        page_table=call.page_table,
        cu_seqlens_q=call.lengths.cumulative_rows,
        max_seqlen_q=call.max_rows,
        softmax_scale=call.scale,
        causal=True,
        window_size=(call.left, 0),
        num_splits=1,
    )
    # It gives memory of its own, in which rows of no request are undefined.
    row = torch.arange(len(call.out), device=call.out.device).view(-1, 1, 1)
    live = row < call.lengths.cumulative_rows[-1]
    torch.where(live, result, call.out, out=call.out)
