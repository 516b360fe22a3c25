"""The gated MLP with gate and up in one multiplication."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from firstlight.models.fuse.linear import PackedLinear, plain_linears


class FusedMLP(nn.Module):
    """``down(act(gate(x)) * up(x))`` (Shazeer 2020, arXiv:2002.05202)."""

    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.gate_up = PackedLinear([mlp.gate_proj, mlp.up_proj])
        self.down = PackedLinear([mlp.down_proj])
        self.act_fn = mlp.act_fn
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
        gated: Tensor = self.act_fn(both[..., : self.width]) * both[..., self.width :]
        out: Tensor = self.down(gated)
        return out
