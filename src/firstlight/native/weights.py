"""Weight matrices as the compiled kernels read them, see ``source/linear.h`` and ``codes.h``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

BLOCK = 32
"""Values of k that share a scale."""

LARGEST = 65504.0
"""Of float16, in which scales are."""


class WeightFormat(IntEnum):
    """How a weight is stored: as it is, or as codes in blocks of 32.

    INT8 has a scale a block (GGUF's Q8_0), INT4 a scale and a least value (Q4_1), in float16.
    """

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT4 = 3

    @property
    def has_codes(self) -> bool:
        """Whether weights are rounded."""
        return self in (WeightFormat.INT8, WeightFormat.INT4)


_PLAIN = {torch.float32: WeightFormat.FLOAT32, torch.bfloat16: WeightFormat.BFLOAT16}


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A matrix ``[out_features, in_features]`` in panels of sixteen outputs.

    Attributes:
        data: uint8, the panels one after another; missing outputs of the last one are zero.
        dtype: of the matrix that was packed.
    """

    data: Tensor
    format: WeightFormat
    out_features: int
    in_features: int
    dtype: torch.dtype


def can_pack(weight: Tensor, format: WeightFormat | None = None) -> bool:
    """Whether the kernels take this matrix in this format, or as it is."""
    if weight.ndim != 2 or weight.dtype not in _PLAIN or weight.device.type != "cpu":
        return False
    codes = format is not None and format.has_codes
    return weight.shape[1] % (BLOCK if codes else 2) == 0


def format_of(weight: Tensor, format: WeightFormat | None) -> WeightFormat:
    """The format to store a weight in; without codes it is that of its dtype.

    Raises:
        ValueError: see :func:`can_pack`.
    """
    if not can_pack(weight, format):
        raise ValueError(f"a weight {tuple(weight.shape)} of {weight.dtype} cannot be packed")
    if format is None or not format.has_codes:
        return _PLAIN[weight.dtype]
    # A comparison with NaN is false.
    if weight.numel() and not float(weight.detach().abs().amax()) <= LARGEST:
        raise ValueError(
            f"a weight {tuple(weight.shape)} with NaN, infinity or values beyond {LARGEST:g} "
            f"cannot be stored as {format.name}"
        )
    return format
