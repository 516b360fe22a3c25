"""The CUDA kernel of ``firstlight::attention``: a library's where one serves, else plain torch.

Everything comes from slots and nothing is read on the host, whichever kernel it is: all of them may
be called between the pieces of a graph, and held by a whole one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from firstlight.attention.flash import attention_flash_, flash_attention_3, torch_varlen
from firstlight.attention.gathered import attention_gathered_
from firstlight.attention.serves import (
    FLASH_3,
    TORCH_VARLEN,
    TRITON,
    Choice,
    Wanted,
    available,
    choose,
)
from firstlight.attention.trial import fault_of

_LOG = logging.getLogger("firstlight.attention")


def attention_cuda_(
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
    """See :func:`firstlight.attention.cpu.attention_`."""
    choice = _chosen(
        q.dtype,
        q.shape[2],
        v.shape[2],
        k_pool.shape[1],
        block_bounds is not None,
        q.device.index or 0,
    )
    kernel_of(choice)(
        q, k, v, k_pool, v_pool, write_locations, page_table, attention_rows, block_bounds, out,
        scale, window, last_only,
    )  # fmt: skip


def kernel_of(choice: Choice) -> Any:
    """The function, with the arguments of the operation, that a choice names."""
    if choice.kernel == FLASH_3:
        return partial(attention_flash_, flash_attention_3)
    if choice.kernel == TORCH_VARLEN:
        return partial(attention_flash_, torch_varlen)
    if choice.kernel == TRITON:  # its package is there
        return import_module("firstlight.gpu.attention").attention_triton_
    return attention_gathered_


@cache
def usable(device: int) -> tuple[str, ...]:
    """The kernels that may be chosen on a GPU: a kernel of our own must compute there what plain
    operations do, in a small trial, before it serves."""
    return tuple(name for name in available() if name != TRITON or _passes(device))


def _passes(device: int) -> bool:
    kernel = kernel_of(Choice(TRITON))
    with _waiting_allowed():
        fault = fault_of(kernel, torch.device("cuda", device))
    if fault is not None:
        _LOG.warning("attention by our own Triton kernel is left out: %s", fault)
    return fault is None


@contextmanager
def _waiting_allowed() -> Iterator[None]:
    """A trial reads its results, also where whoever asked first forbids to wait for the device."""
    if not torch.cuda.is_available():
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def decode_op(op: Any, device: torch.device) -> Any:
    """What a decode runner calls: the kernel of a CPU reads how many rows a request has anyway."""
    return one_row_each(op) if device.type == "cuda" else op


def one_row_each(op: Any) -> Any:
    """``op`` for batches whose row i is request i's only one, as in a decode step.

    The rows of such a batch are the last rows of its requests. Kernels that know so compute a
    request's one row against its own keys, where they would have to allow for any number.
    """

    def attend(*args: Any) -> None:
        op(*args[:-1], True)

    return attend


@cache
def _chosen(
    dtype: torch.dtype,
    key_dim: int,
    value_dim: int,
    page_size: int,
    prefix_lm: bool,
    device: int,
) -> Choice:
    capability = _capability(device)
    wanted = Wanted(dtype, key_dim, value_dim, page_size, prefix_lm, capability)
    return choose(wanted, usable(device))


@cache
def _capability(device: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)
