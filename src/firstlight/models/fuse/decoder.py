"""Walks a decoder's layers and swaps what has a faster equal."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import nn

from firstlight.models.fuse.attention import FusedAttention
from firstlight.models.fuse.kit import Kit
from firstlight.models.fuse.linear import can_pack
from firstlight.models.fuse.mlp import FusedMLP
from firstlight.models.fuse.parity import Rotary, attention_parity, heard
from firstlight.models.fuse.report import FuseReport
from firstlight.models.fuse.swap import Candidate, fused_mlp, swap, swap_norms


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
            swap(layer, "mlp", partial(fused_mlp, mlp, hidden_size, kit), report)
        _pack_linears(layer, report, kit)
        swap_norms(layer, report, kit)
    swap_norms(decoder, report, kit)


def _fused_attention(old: nn.Module, hidden_size: int, rotary: Rotary, kit: Kit) -> Candidate:
    new = FusedAttention(old, heard(old, hidden_size, rotary), kit)
    return new, attention_parity(old, new, hidden_size, rotary)


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
