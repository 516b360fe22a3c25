"""Replacements are put in place here, after their check alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from firstlight.models.fuse.attention import epsilon_of
from firstlight.models.fuse.kit import Kit, NativeNorm
from firstlight.models.fuse.mlp import FusedMLP
from firstlight.models.fuse.parity import module_parity
from firstlight.models.fuse.report import FuseReport

Candidate = tuple[nn.Module, str | None]
"""A replacement, and what its parity check found wrong; None if it found nothing."""


def swap(
    layer: nn.Module, name: str, candidate: Callable[[], Candidate], report: FuseReport
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


def _native_norm(old: nn.Module, weight: torch.Tensor, eps: float) -> Candidate:
    # Which kind of norm it is shows in a name only; whether that is so, parity says.
    new = NativeNorm(weight, eps, offset=not hasattr(old, "variance_epsilon"))
    return new, module_parity(old, new, weight.shape[0])


def fused_mlp(old: nn.Module, hidden_size: int, kit: Kit) -> Candidate:
    """A gated MLP as one or two multiplications, and its check.

    Args:
        hidden_size: columns of its input.
    """
    new = FusedMLP(old, kit)
    return new, module_parity(old, new, hidden_size)
