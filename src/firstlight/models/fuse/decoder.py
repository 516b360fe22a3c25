"""Walks a decoder's layers and swaps what has a faster equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from firstlight.models.fuse.attention import FusedAttention, epsilon_of
from firstlight.models.fuse.kit import Kit, NativeNorm
from firstlight.models.fuse.linear import can_pack
from firstlight.models.fuse.mlp import FusedMLP
from firstlight.models.fuse.parity import Rotary, attention_parity, heard, module_parity
from firstlight.models.fuse.report import FuseReport

_Candidate = tuple[nn.Module, str | None]
"""A replacement, and what its parity check found wrong."""


@torch.no_grad()
def fuse_decoder(
    decoder: Any,
    position_rank: int,
    report: FuseReport,
    kit: Kit,
    before: Callable[[int], None] = lambda index: None,
) -> None:
    """Swap attention layers, gated MLPs and linear layers of ``decoder`` in place.

    A module is replaced only after it and its replacement gave equal outputs on random input; what
    does not fit, fails or differs stays, and the report says why. One layer after another, so that
    the old weights of a single one are there beside the new ones.

    Args:
        decoder: transformers' decoder with ``layers``; without, nothing is done.
        position_rank: rows of its rope positions.
        report: gets what was swapped and what was not.
        kit: what the replacements are made of.
        before: called with each layer's index before it is looked at.
    """
    hidden_size = decoder.config.hidden_size
    for index, layer in enumerate(getattr(decoder, "layers", ())):
        before(index)
        attention: Any = getattr(layer, "self_attn", None)
        mlp: Any = getattr(layer, "mlp", None)
        if FusedAttention.takes(attention):
            rotary = _rotary(decoder, attention, position_rank, hidden_size)
            if rotary is not None:
                fused = partial(_fused_attention, attention, hidden_size, rotary, kit)
                swap(layer, "self_attn", fused, report)
        if FusedMLP.takes(mlp):
            swap(layer, "mlp", partial(_fused_mlp, mlp, hidden_size, kit), report)
        _pack_linears(layer, report, kit)
        swap_norms(layer, report, kit)
    swap_norms(decoder, report, kit)


def _fused_attention(old: nn.Module, hidden_size: int, rotary: Rotary, kit: Kit) -> _Candidate:
    new = FusedAttention(old, heard(old, hidden_size, rotary), kit)
    return new, attention_parity(old, new, hidden_size, rotary)


def _fused_mlp(old: nn.Module, hidden_size: int, kit: Kit) -> _Candidate:
    new = FusedMLP(old, kit)
    return new, module_parity(old, new, hidden_size)


def swap(
    layer: nn.Module, name: str, candidate: Callable[[], _Candidate], report: FuseReport
) -> None:
    """Put a replacement in a module's place, if its check found nothing; report it either way.

    Args:
        candidate: makes the replacement and what its check found wrong.
    """
    old = type(getattr(layer, name)).__name__
    # Whatever a foreign module does on being called its own way is no error of this load: it stays.
    try:
        new, found = candidate()
    except Exception as error:
        report.left[old] = f"{type(error).__name__}: {error}"
        return
    if found is not None:
        report.left[old] = found
        return
    setattr(layer, name, new)
    report.count(old)


def swap_norms(owner: Any, report: FuseReport, kit: Kit) -> None:
    """Swap RMSNorms that are the owner's own attributes for compiled ones."""
    if kit.kernels is None:
        return
    for name, norm in list(owner.named_children()):
        weight, eps = getattr(norm, "weight", None), epsilon_of(norm)
        if type(norm).__name__.endswith("RMSNorm") and weight is not None and eps is not None:
            swap(owner, name, partial(_native_norm, norm, weight, eps), report)


def _native_norm(old: nn.Module, weight: torch.Tensor, eps: float) -> _Candidate:
    # Which kind of norm it is shows in a name only; whether that is so, parity says.
    new = NativeNorm(weight, eps, offset=not hasattr(old, "variance_epsilon"))
    return new, module_parity(old, new, weight.shape[0])


def _pack_linears(layer: nn.Module, report: FuseReport, kit: Kit) -> None:
    """Lay out the linear layers that are left for the kernels."""
    for module in list(layer.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear and (kit.takes(child.weight) or can_pack(child.weight)):
                setattr(module, name, kit.linear([child]))
                report.count("Linear")


def _rotary(decoder: Any, attention: Any, position_rank: int, hidden_size: int) -> Rotary | None:
    """Cosines and sines ``[1, rows, head_dim]`` as the layer gets them; None if it gets others.

    Where layers with a window have a rope of their own, the embedding wants the layer's type.
    """
    rows = 5
    device = decoder.device
    positions = torch.arange(3, 3 + rows, device=device).expand(position_rank, 1, rows)
    where = positions if position_rank > 1 else positions[0]
    hidden = torch.zeros(1, rows, hidden_size, dtype=decoder.dtype, device=device)
    types = "layer_type" in signature(decoder.rotary_emb.forward).parameters
    try:
        cos, sin = decoder.rotary_emb(hidden, where, *([attention.layer_type] if types else []))
    except Exception:
        return None
    return (cos, sin) if cos.ndim == 3 else None
