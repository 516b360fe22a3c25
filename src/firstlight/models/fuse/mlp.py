"""The gated MLP with gate and up in one multiplication."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from firstlight.models.fuse.kit import Kit, activation_kind
from firstlight.models.fuse.linear import plain_linears


class FusedMLP(nn.Module):
    """``down(act(gate(x)) * up(x))`` (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, mlp: Any, kit: Kit) -> None:
        super().__init__()
        self.gate_up = kit.linear([mlp.gate_proj, mlp.up_proj])
        self.down = kit.linear([mlp.down_proj])
        self.act_fn = mlp.act_fn
        self.gate = activation_kind(mlp.act_fn) if kit.takes(mlp.gate_proj.weight) else None
        self.width = mlp.gate_proj.out_features

    @staticmethod
    def takes(mlp: object) -> bool:
        """Whether ``mlp`` has the parts; whether it puts them together so is for the parity check
        to say."""
        names = ("gate_proj", "up_proj", "down_proj")
        return hasattr(mlp, "act_fn") and plain_linears(*(getattr(mlp, n, None) for n in names))

    def forward(self, x: Tensor) -> Tensor:
        """``[..., hidden]`` to ``[..., hidden]``."""
        both = self.gate_up(x)
        gated: Tensor
        if self.gate is None:
            gated = self.act_fn(both[..., : self.width]) * both[..., self.width :]
        else:
            gated = torch.ops.firstlight.gate(both, self.gate)
        out: Tensor = self.down(gated)
        return out
