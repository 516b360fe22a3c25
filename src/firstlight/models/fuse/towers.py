"""The vision towers on compiled kernels: linear layers and activations.

Their attention stays torch's: the compiled kernel is made for rows that see a part of the keys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firstlight.models.adapter import Adapter
from firstlight.models.fuse.kit import Kit, NativeActivation, activation_kind
from firstlight.models.fuse.parity import module_parity
from firstlight.models.fuse.report import FuseReport

_COLUMNS = 48
"""Of the random input on which activations are compared."""


@torch.no_grad()
def fuse_towers(adapter: Adapter, report: FuseReport, kit: Kit) -> None:
    """Swap in place what lies outside of the decoder and the LM head and has a compiled equal.

    Weights stay as they are stored: a picture is encoded once, and its rows are kept.
    """
    if kit.kernels is None:
        return
    kept = {id(module) for module in adapter.decoder.modules()}
    kept.add(id(adapter.model.get_output_embeddings()))
    plain, like = Kit(kit.kernels), torch.empty(0, dtype=adapter.dtype)
    for parent in list(adapter.model.modules()):
        if id(parent) in kept:
            continue
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear and id(child) not in kept and plain.takes(child.weight):
                setattr(parent, name, plain.linear([child]))
                report.count("Linear of a tower")
            elif (kind := activation_kind(child)) is not None:
                _swap_activation(parent, name, child, kind, report, like)


def _swap_activation(
    parent: nn.Module, name: str, old: nn.Module, kind: int, report: FuseReport, like: Tensor
) -> None:
    new = NativeActivation(kind)
    found = module_parity(old, new, _COLUMNS, like)
    if found is None:
        setattr(parent, name, new)
        report.count(type(old).__name__)
    else:
        report.left[type(old).__name__] = found
