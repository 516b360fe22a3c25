"""The vision towers on compiled kernels: attention, MLPs, norms, linear layers, activations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from firstlight.models.adapter import Adapter
from firstlight.models.fuse.kit import Kit, NativeActivation, NativeLayerNorm, activation_kind
from firstlight.models.fuse.mlp import FusedMLP
from firstlight.models.fuse.parity import module_parity
from firstlight.models.fuse.report import FuseReport
from firstlight.models.fuse.swap import Candidate, fused_mlp, swap, swap_norms
from firstlight.models.fuse.tower_attention import (
    CropAttention,
    SegmentAttention,
    crop_parity,
    segment_parity,
)

_COLUMNS = 48
"""Of the random input on which activations are compared."""


@torch.no_grad()
def fuse_towers(adapter: Adapter, report: FuseReport, kit: Kit) -> None:
    """Swap in place what lies outside of the decoder and the LM head and has a compiled equal.

    Weights stay as they are stored: a picture is encoded once, and its rows are kept.
    """
    if kit.kernels is None and not kit.segments:
        return
    kept = {id(module) for module in adapter.decoder.modules()}
    kept.add(id(adapter.model.get_output_embeddings()))
    plain, like = replace(kit, format=None), torch.empty(0, dtype=adapter.dtype)
    for parent in _outside(adapter, kept):
        for name, child in list(parent.named_children()):
            if id(child) in kept:
                continue
            candidate = _whole(child, plain)
            if candidate is not None:
                swap(parent, name, candidate, report)
    for parent in _outside(adapter, kept) if kit.kernels is not None else ():
        swap_norms(parent, report, plain)
        for name, child in list(parent.named_children()):
            if id(child) not in kept:
                _swap_part(parent, name, child, report, plain, like)


def _outside(adapter: Adapter, kept: set[int]) -> list[nn.Module]:
    return [module for module in adapter.model.modules() if id(module) not in kept]


def _whole(module: nn.Module, kit: Kit) -> Callable[[], Candidate] | None:
    """What makes the replacement of a module of several layers, and checks it."""
    if SegmentAttention.takes(module, kit):
        return partial(_segments, module, kit)
    if kit.kernels is None:
        return None
    if CropAttention.takes(module, kit):
        return partial(_crops, module, kit)
    if FusedMLP.takes(module):
        gate: nn.Linear = module.gate_proj  # type: ignore[assignment]
        if kit.takes(gate.weight):
            return partial(fused_mlp, module, gate.in_features, kit)
    return None


def _segments(old: nn.Module, kit: Kit) -> Candidate:
    new = SegmentAttention(old, kit)
    return new, segment_parity(old, new)


def _crops(old: nn.Module, kit: Kit) -> Candidate:
    new = CropAttention(old, kit)
    return new, crop_parity(old, new)


def _layer_norm(old: nn.LayerNorm) -> Candidate:
    new = NativeLayerNorm(old)
    return new, module_parity(old, new, old.normalized_shape[0])


def _activation(old: nn.Module, kind: int, like: Tensor) -> Candidate:
    new = NativeActivation(kind)
    return new, module_parity(old, new, _COLUMNS, like)


def _swap_part(
    parent: nn.Module, name: str, child: nn.Module, report: FuseReport, kit: Kit, like: Tensor
) -> None:
    """One layer, norm or activation."""
    if type(child) is nn.Linear and kit.takes(child.weight):
        setattr(parent, name, kit.linear([child]))
        report.count("Linear of a tower")
    elif type(child) is nn.LayerNorm and len(child.normalized_shape) == 1:
        if child.weight is not None:
            swap(parent, name, partial(_layer_norm, child), report)
    elif (kind := activation_kind(child)) is not None:
        swap(parent, name, partial(_activation, child, kind, like), report)
