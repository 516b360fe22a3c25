"""Weights of a few bits: the model is rounded first, so that all checks compare with what it is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firstlight.errors import ModelLoadError
from firstlight.models.fuse.report import FuseReport
from firstlight.native import Kernels, WeightFormat, can_pack

_NOTHING = 1e-3
"""Share of the weights' norm below which rounding changed nothing but the last bit."""


@torch.no_grad()
def round_layer(
    layer: nn.Module, kernels: Kernels, format: WeightFormat, report: FuseReport
) -> None:
    """Give the linear layers of a decoder layer the weights that ``format`` can hold.

    The weights are new tensors: written in place, those that are mapped from a file would stay in
    memory for as long as anything else of the file is used.

    Args:
        report: gets how many were rounded, and which were not.

    Raises:
        ModelLoadError: a weight has values that codes cannot hold, such as NaN.
    """
    for name, module in layer.named_modules():
        if type(module) is not nn.Linear:
            continue
        if not can_pack(module.weight, format):
            report.left[f"{name} as {format.name}"] = (
                f"its {module.in_features} inputs are no multiple of 32"
            )
            continue
        try:
            rounded = kernels.unpack(kernels.pack(module.weight, format))
        except ValueError as error:
            raise ModelLoadError(f"{name}.weight of a decoder layer: {error}") from error
        module.weight = nn.Parameter(rounded, requires_grad=False)
        report.stored[format.name.lower()] = report.stored.get(format.name.lower(), 0) + 1


@torch.no_grad()
def head_format(weight: Tensor, kernels: Kernels, format: WeightFormat) -> WeightFormat:
    """The format of an LM head: 8 bits, or 4 where that loses nothing.

    The head decides between tokens, and each of its weights is used in every answer. A file that
    holds it in 4 bits gives it back exactly.
    """
    if format is not WeightFormat.INT4 or not can_pack(weight, format):
        return WeightFormat.INT8
    some = weight[: 1 << 12].detach()
    lost = kernels.unpack(kernels.pack(some, format)).float() - some.float()
    return (
        format if float(lost.norm()) <= _NOTHING * float(some.float().norm()) else WeightFormat.INT8
    )
