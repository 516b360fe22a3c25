"""What fused modules are made of: torch's kernels, or the compiled ones where they are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from firstlight.models.fuse.linear import PackedLinear, joined_bias, joined_weight
from firstlight.native import Kernels, PackedWeight, WeightFormat, can_pack


@dataclass(frozen=True, slots=True)
class Kit:
    """The choice of kernels for one model.

    Attributes:
        kernels: the compiled kernels, registered with torch; None for torch's own.
        format: how linear weights of the decoder are stored; None as they are.
        segments: whether towers are to find the borders of pictures without asking the host where
            there are no compiled kernels for that, so that graphs can hold them.
        rounds_rows: whether layers with codes are to round their inputs once all is checked.
    """

    kernels: Kernels | None = None
    format: WeightFormat | None = None
    segments: bool = False
    rounds_rows: bool = False

    def linear(self, layers: Sequence[nn.Linear]) -> nn.Module:
        """One or several linear layers of the same input as a single multiplication."""
        if self.kernels is None or not can_pack(layers[0].weight):
            return PackedLinear(layers)
        weight = joined_weight(layers)
        format = self.format if can_pack(weight, self.format) else None
        return NativeLinear(self.kernels.pack(weight, format), joined_bias(layers))

    def takes(self, weight: Tensor) -> bool:
        """Whether the compiled kernels multiply with this weight."""
        return self.kernels is not None and can_pack(weight)


class NativeLinear(nn.Module):
    """A linear layer of the compiled kernels.

    A row's result does not depend on the rows beside it, and few rows cost little more than the
    reading of the weight.

    Attributes:
        rounds_rows: whether inputs are rounded to 8 bits and multiplied as whole numbers; only for
            a weight that is stored as codes.
    """

    def __init__(self, weight: PackedWeight, bias: Tensor | None) -> None:
        super().__init__()
        # Not a parameter: it is bytes, of a layout that a state dict should not save.
        self.data = weight.data
        # Towers read the dtype of `weight`.
        self.weight = torch.empty(0, dtype=weight.dtype)
        self.format = int(weight.format)
        self.out_features = weight.out_features
        self.in_features = weight.in_features
        self.bias = bias
        self.rounds_rows = False

    def forward(self, x: Tensor) -> Tensor:
        """``[..., in_features]`` to ``[..., out_features]``."""
        ops = torch.ops.firstlight
        op = ops.linear_int8 if self.rounds_rows else ops.linear
        y: Tensor = op(x, self.data, self.bias, self.format, self.out_features)
        return y


def round_rows(model: nn.Module) -> int:
    """Let all layers of a model whose weights are codes round their inputs to 8 bits.

    To be called when modules are put together and checked: with rounded inputs they would not
    equal, within the roundings of a type, what they replace.

    Returns:
        How many there are.
    """
    found = [m for m in model.modules() if isinstance(m, NativeLinear)]
    found = [m for m in found if WeightFormat(m.format).has_codes]
    for module in found:
        module.rounds_rows = True
    return len(found)


class NativeNorm(nn.Module):
    """RMSNorm (Zhang and Sennrich 2019, arXiv:1910.07467) in one pass.

    Args:
        offset: Gemma's norm: the weight is an offset from one, and rounding comes last.
    """

    def __init__(self, weight: Tensor, eps: float, *, offset: bool) -> None:
        super().__init__()
        self.weight = 1.0 + weight.detach().float() if offset else weight.detach()
        self.eps = eps
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        """``[..., width]`` to the same."""
        y: Tensor = torch.ops.firstlight.rms_norm(x, self.weight, self.eps, self.offset)
        return y


class NativeLayerNorm(nn.Module):
    """LayerNorm (Ba, Kiros and Hinton 2016, arXiv:1607.06450) of the compiled kernels."""

    def __init__(self, norm: nn.LayerNorm) -> None:
        super().__init__()
        self.weight = None if norm.weight is None else norm.weight.detach()
        self.bias = None if norm.bias is None else norm.bias.detach()
        self.eps = norm.eps

    def forward(self, x: Tensor) -> Tensor:
        """``[..., width]`` to the same."""
        y: Tensor = torch.ops.firstlight.layer_norm(x, self.weight, self.bias, self.eps)
        return y


class NativeActivation(nn.Module):
    """An activation function of the compiled kernels, by its number there."""

    def __init__(self, kind: int) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: Tensor) -> Tensor:
        """Any shape to the same."""
        y: Tensor = torch.ops.firstlight.activate(x, self.kind)
        return y


_SILU, _GELU_TANH, _GELU, _QUICK_GELU = range(4)
_ACTIVATIONS = {
    "SiLU": _SILU,
    "SiLUActivation": _SILU,
    "GELUTanh": _GELU_TANH,
    "PytorchGELUTanh": _GELU_TANH,
    "GELU": _GELU,
    "GELUActivation": _GELU,
    "QuickGELUActivation": _QUICK_GELU,
}


def activation_kind(activation: object) -> int | None:
    """The compiled function that is named like an activation; None if there is none."""
    name = type(activation).__name__
    if name == "GELU" and getattr(activation, "approximate", "none") == "tanh":
        return _GELU_TANH
    return _ACTIVATIONS.get(name)
