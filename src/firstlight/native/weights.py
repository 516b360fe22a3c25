"""Weight matrices as the compiled kernels read them, see ``source/linear.h`` and ``codes.h``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor
from torch.nn.functional import pad

LANES = 16
BLOCK = 32


class WeightFormat(IntEnum):
    """How a weight is stored. ``PLAIN`` formats hold it as it is."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT4 = 3


PLAIN = {torch.float32: WeightFormat.FLOAT32, torch.bfloat16: WeightFormat.BFLOAT16}


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A matrix ``[out_features, in_features]`` in panels of sixteen outputs.

    Attributes:
        data: uint8, the panels one after another; missing outputs of the last one are zero.
    """

    data: Tensor
    format: WeightFormat
    out_features: int
    in_features: int


def can_pack(weight: Tensor, format: WeightFormat | None = None) -> bool:
    """Whether :func:`pack_weight` takes this matrix (in this format, or as it is)."""
    if weight.ndim != 2 or weight.dtype not in PLAIN or weight.device.type != "cpu":
        return False
    plain = format is None or format in PLAIN.values()
    return weight.shape[1] % (2 if plain else BLOCK) == 0


def pack_weight(weight: Tensor, format: WeightFormat | None = None) -> PackedWeight:
    """Lay out ``weight`` ``[out_features, in_features]``, rounding it if the format has codes.

    Raises:
        ValueError: see :func:`can_pack`.
    """
    if not can_pack(weight, format):
        raise ValueError(f"a weight {tuple(weight.shape)} of {weight.dtype} cannot be packed")
    format = PLAIN[weight.dtype] if format is None else format
    n, k = weight.shape
    panels = pad(weight.detach(), (0, 0, 0, -n % LANES)).view(-1, LANES, k)
    # Some panels at a time: the steps between need several times their memory.
    parts = [
        _LAYOUTS[format](panels[i : i + 64]).view(torch.uint8).flatten()
        for i in range(0, len(panels), 64)
    ]
    return PackedWeight(torch.cat(parts), format, n, k)


def unpacked(weight: PackedWeight) -> Tensor:
    """The matrix that the kernels compute with, float32 ``[out_features, in_features]``."""
    panels = -(-weight.out_features // LANES)
    by_panel = weight.data.view(panels, -1)
    matrix = _READERS[weight.format](by_panel, weight.in_features)
    return matrix.reshape(panels * LANES, weight.in_features)[: weight.out_features]


def _by_k(panels: Tensor) -> Tensor:
    return panels.transpose(1, 2).contiguous()


def _by_pairs(panels: Tensor) -> Tensor:
    count, _, k = panels.shape
    return panels.view(count, LANES, k // 2, 2).transpose(1, 2).contiguous()


def _int8(panels: Tensor) -> Tensor:
    """Codes -127..127 of equal steps in each block of 32; GGUF's Q8_0."""
    blocks = panels.float().view(*panels.shape[:2], -1, BLOCK)
    scale = (blocks.abs().amax(-1, keepdim=True) / 127).half()
    codes = _codes(blocks, scale.float()).clamp_(-127, 127).to(torch.int8)
    lanes = codes.view(*codes.shape[:3], 8, 4).permute(0, 2, 3, 1, 4).contiguous()
    return torch.cat([_head(scale), lanes.view(torch.uint8).flatten(2)], -1)


def _int4(panels: Tensor) -> Tensor:
    """Codes 0..15 between the least and the largest value of each block of 32; GGUF's Q4_1."""
    blocks = panels.float().view(*panels.shape[:2], -1, BLOCK)
    least = blocks.amin(-1, keepdim=True).half()
    scale = ((blocks.amax(-1, keepdim=True) - least.float()) / 15).half()
    codes = _codes(blocks - least.float(), scale.float()).clamp_(0, 15).to(torch.int64)
    # [.., t, s, which of a pair]: a nibble of the lower or the upper half of 32 bits.
    shifts = 4 * torch.arange(4).unsqueeze(1) + 16 * torch.arange(2)
    words = (codes.view(*codes.shape[:3], 4, 4, 2) << shifts).sum((-1, -2))
    lanes = words.to(torch.uint32).permute(0, 2, 3, 1).contiguous()
    return torch.cat([_head(scale), _head(least), lanes.view(torch.uint8).flatten(2)], -1)


def _codes(values: Tensor, scale: Tensor) -> Tensor:
    return torch.where(scale > 0, values / scale, 0.0).round_()


def _head(of_blocks: Tensor) -> Tensor:
    """Float16 ``[panels, lanes, blocks, 1]`` as bytes ``[panels, blocks, 32]``."""
    return of_blocks.squeeze(-1).transpose(1, 2).contiguous().view(torch.uint8)


def _read_plain(panels: Tensor, k: int) -> Tensor:
    return panels.contiguous().view(torch.float32).view(-1, k, LANES).transpose(1, 2)


def _read_pairs(panels: Tensor, k: int) -> Tensor:
    pairs = panels.contiguous().view(torch.bfloat16).view(-1, k // 2, LANES, 2)
    return pairs.transpose(1, 2).float()


def _read_head(blocks: Tensor, at: int) -> Tensor:
    head = blocks[..., at : at + 2 * LANES].contiguous().view(torch.float16)
    return head.transpose(1, 2).unsqueeze(-1).float()


def _read_int8(panels: Tensor, k: int) -> Tensor:
    blocks = panels.view(len(panels), k // BLOCK, -1)
    codes = blocks[..., 32:].contiguous().view(torch.int8).view(len(panels), -1, 8, LANES, 4)
    return codes.permute(0, 3, 1, 2, 4).flatten(3).float() * _read_head(blocks, 0)


def _read_int4(panels: Tensor, k: int) -> Tensor:
    blocks = panels.view(len(panels), k // BLOCK, -1)
    words = blocks[..., 64:].contiguous().view(torch.int32).long().view(len(panels), -1, 4, LANES)
    shifts = 4 * torch.arange(4).unsqueeze(1) + 16 * torch.arange(2)
    codes = (words.permute(0, 3, 1, 2)[..., None, None] >> shifts) & 15
    return codes.flatten(3).float() * _read_head(blocks, 0) + _read_head(blocks, 32)


_LAYOUTS = {
    WeightFormat.FLOAT32: _by_k,
    WeightFormat.BFLOAT16: _by_pairs,
    WeightFormat.INT8: _int8,
    WeightFormat.INT4: _int4,
}
_READERS = {
    WeightFormat.FLOAT32: _read_plain,
    WeightFormat.BFLOAT16: _read_pairs,
    WeightFormat.INT8: _read_int8,
    WeightFormat.INT4: _read_int4,
}
