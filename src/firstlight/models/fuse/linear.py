"""Linear layers whose weights are laid out once for the kernel that multiplies them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

# A second layout costs the layer's memory again: up to 4 MiB a layer it is kept.
_BOTH_LAYOUTS = 1 << 20
# Rows from which the reordered float32 weight wins (measured at 256 to 2,048 columns).
_ROWS_PACKED = 4


class PackedLinear(nn.Module):
    """One or several linear layers of the same input as a single multiplication.

    In bfloat16 on a CPU the weight is reordered for oneDNN once instead of at each call, with the
    same bits as a result (a call took 0.55-0.9x of ``F.linear`` at 1 to 256 rows). In float32 the
    reordered weight wins from a few rows on (0.6-0.95x) and loses at one, so small layers keep both
    layouts. Elsewhere the weight stays a plain matrix.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.out_features = sum(layer.out_features for layer in layers)
        self.in_features = layers[0].in_features
        weight = joined_weight(layers)
        self.bias = joined_bias(layers)
        # Not parameters: an opaque layout has no storage that a state dict could save.
        self.packed: Tensor | None = None
        self.weight: Tensor | None = weight
        self._rows_packed = 1
        if can_pack(weight):
            self.packed, self.weight = _packed(weight), None
        elif weight.dtype is torch.float32 and weight.numel() <= _BOTH_LAYOUTS and _onednn(weight):
            self.packed, self._rows_packed = _packed(weight), _ROWS_PACKED

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in_features]`` to ``[..., out_features]``, the layers' columns in order."""
        rows = x.numel() // self.in_features
        if self.packed is not None and rows >= self._rows_packed:
            y: Tensor = torch.ops.mkldnn._linear_pointwise(
                x, self.packed, self.bias, "none", [], ""
            )
            return y
        assert self.weight is not None
        return linear(x, self.weight, self.bias)


def _packed(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, None)
    return packed


def _onednn(weight: Tensor) -> bool:
    available = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return weight.device.type == "cpu" and bool(available)


def can_pack(weight: Tensor) -> bool:
    """Whether oneDNN takes a prepacked bfloat16 weight here."""
    return (
        weight.dtype is torch.bfloat16
        and _onednn(weight)
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )


def plain_linears(*modules: object) -> bool:
    """Whether all are exactly ``nn.Linear``: a subclass (quantised, sharded) is left alone."""
    return all(type(module) is nn.Linear for module in modules)


def joined_weight(layers: Sequence[nn.Linear]) -> Tensor:
    """The layers' weights, one below the other; of a single layer its own, not copied."""
    weights = [layer.weight.detach() for layer in layers]
    return weights[0] if len(weights) == 1 else torch.cat(weights)


def joined_bias(layers: Sequence[nn.Linear]) -> Tensor | None:
    """The layers' biases in one row, zeros for layers without; None if none has one."""
    if all(layer.bias is None for layer in layers):
        return None
    parts = [
        layer.weight.new_zeros(layer.out_features) if layer.bias is None else layer.bias.detach()
        for layer in layers
    ]
    return torch.cat(parts)


def has_faster_layout(layer: nn.Linear) -> bool:
    """Whether :class:`PackedLinear` would multiply with another layout than ``layer`` does."""
    weight = layer.weight
    small = weight.dtype is torch.float32 and weight.numel() <= _BOTH_LAYOUTS
    return can_pack(weight) or (small and _onednn(weight))
