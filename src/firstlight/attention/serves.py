"""Which kernel serves which attention: declared facts, and why not."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import torch

GATHERED = "gathered"
TORCH_VARLEN = "torch-varlen"
FLASH_3 = "flash-attention-3"
TRITON = "triton"

PAGE_SIZES = (16, 256)
"""Tokens of a page among which a GPU's engine chooses: the usual size, and what torch's own kernel
takes."""

_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a layer's attention asks of a kernel; all of it is known before any batch.

    Attributes:
        prefix_lm: whether rows of a media block see each other.
        capability: the GPU's compute capability, e.g. ``(9, 0)``.
    """

    dtype: torch.dtype
    key_dim: int
    value_dim: int
    page_size: int
    prefix_lm: bool
    capability: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel that serves, and why each one before it does not."""

    kernel: str
    reasons: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return "; ".join([self.kernel, *(f"not {name}: {why}" for name, why in self.reasons)])


def choose(wanted: Wanted, installed: Sequence[str]) -> Choice:
    """The first that serves: FlashAttention-3, torch's own, one of ours, then plain operations.

    Args:
        installed: of :func:`available`.
    """
    reasons: list[tuple[str, str]] = []
    checks = ((FLASH_3, _against_flash_3), (TORCH_VARLEN, _against_varlen), (TRITON, _against_own))
    for kernel, check in checks:
        why = check(wanted) if kernel in installed else "it is not installed"
        if why is None:
            return Choice(kernel, tuple(reasons))
        reasons.append((kernel, why))
    return Choice(GATHERED, tuple(reasons))


def page_size_for(layers: Sequence[Wanted], installed: Sequence[str]) -> int:
    """Of :data:`PAGE_SIZES` the one at which a library's kernel serves most layers; the smaller of
    equals, since less of a page then lies idle.

    Args:
        layers: what each layer asks for; their own page size is not looked at.
        installed: of :func:`available`.
    """

    def served(size: int) -> int:
        choices = (choose(replace(layer, page_size=size), installed) for layer in layers)
        return sum(choice.kernel in (FLASH_3, TORCH_VARLEN) for choice in choices)

    return max(PAGE_SIZES, key=served)


@cache
def available() -> tuple[str, ...]:
    """The libraries' kernels that this process could call, whatever the device."""
    found = []
    if importlib.util.find_spec("flash_attn_interface") is not None:
        found.append(FLASH_3)
    if _torch_reads_pages():
        found.append(TORCH_VARLEN)
    if importlib.util.find_spec("triton") is not None:
        found.append(TRITON)
    return tuple(found)


def _torch_reads_pages() -> bool:
    """Older releases of torch have the module, without a page table or without an output."""
    try:
        from torch.nn.attention import varlen
    except ImportError:
        return False
    function = getattr(varlen, "varlen_attn_out", None)
    return function is not None and {"block_table", "seqused_k", "num_splits"} <= set(
        inspect.signature(function).parameters
    )


def _against_both(wanted: Wanted) -> str | None:
    if wanted.prefix_lm:
        return "it has no mask for media blocks"
    if wanted.dtype not in _HALF:
        return f"it computes in float16 and bfloat16, and the model is {wanted.dtype}"
    return None


def _against_varlen(wanted: Wanted) -> str | None:
    if why := _against_both(wanted):
        return why
    if wanted.capability < (8, 0):
        return f"it needs compute capability 8.0, and the GPU has {_dotted(wanted.capability)}"
    if wanted.key_dim != wanted.value_dim:
        return f"keys of {wanted.key_dim} columns and values of {wanted.value_dim} must be equal"
    if wanted.key_dim > 256 or wanted.key_dim % 8:
        return f"head_dim = {wanted.key_dim}; accepted: multiples of 8 up to 256"
    if wanted.page_size % 256:
        return f"page_size = {wanted.page_size}; accepted: multiples of 256"
    return None


def _against_flash_3(wanted: Wanted) -> str | None:
    if why := _against_both(wanted):
        return why
    if wanted.capability[0] != 9:
        return f"it needs compute capability 9.x, and the GPU has {_dotted(wanted.capability)}"
    for name, dim in (("key_dim", wanted.key_dim), ("value_dim", wanted.value_dim)):
        if dim > 256 or dim % 8:
            return f"{name} = {dim}; accepted: multiples of 8 up to 256"
    # Of unequal widths only some pairs are built in.
    if wanted.key_dim != wanted.value_dim:
        return f"keys of {wanted.key_dim} columns and values of {wanted.value_dim} must be equal"
    return None


def _against_own(wanted: Wanted) -> str | None:
    if wanted.capability < (8, 0):
        return (
            f"it is made for compute capability 8.0, and the GPU has {_dotted(wanted.capability)}"
        )
    for name, dim in (("key_dim", wanted.key_dim), ("value_dim", wanted.value_dim)):
        if dim > 256:
            return f"{name} = {dim}; accepted: up to 256"
    return None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
