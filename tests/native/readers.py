"""Reads packed weights by the description of their layout, value by value."""

from __future__ import annotations

import struct

import numpy as np
import torch
from torch import Tensor

from firstlight.native import PackedWeight, WeightFormat

LANES = 16


def read(weight: PackedWeight) -> Tensor:
    """float64 ``[out_features, in_features]`` of what a packed weight holds."""
    data = bytes(weight.data.numpy().tobytes())
    n, k = weight.out_features, weight.in_features
    value = {
        WeightFormat.FLOAT32: _float32,
        WeightFormat.BFLOAT16: _bfloat16,
        WeightFormat.INT8: _int8,
        WeightFormat.INT4: _int4,
    }[weight.format]
    values = [[value(data, row // LANES, row % LANES, c, k) for c in range(k)] for row in range(n)]
    return torch.tensor(values, dtype=torch.float64).view(n, k)


def _float32(data: bytes, panel: int, lane: int, c: int, k: int) -> float:
    """``[K][16]`` floats."""
    return _unpack("<f", data, ((panel * k + c) * LANES + lane) * 4)


def _bfloat16(data: bytes, panel: int, lane: int, c: int, k: int) -> float:
    """``[K / 2][16][2]``."""
    at = panel * k * LANES + (c // 2 * LANES + lane) * 2 + c % 2
    return _unpack("<f", b"\0\0" + data[at * 2 : at * 2 + 2], 0)


def _int8(data: bytes, panel: int, lane: int, c: int, k: int) -> float:
    """16 scales, then eight times 16 lanes of four bytes."""
    block = (panel * (k // 32) + c // 32) * (32 + 512)
    at = block + 32 + c % 32 // 4 * 64 + lane * 4 + c % 4
    return _unpack("<b", data, at) * _unpack("<e", data, block + lane * 2)


def _int4(data: bytes, panel: int, lane: int, c: int, k: int) -> float:
    """16 scales, 16 least values, then four times 16 lanes of 32 bits."""
    block = (panel * (k // 32) + c // 32) * (64 + 256)
    word = int(struct.unpack_from("<I", data, block + 64 + c % 32 // 8 * 64 + lane * 4)[0])
    nibble = c % 8 // 2 + 4 * (c % 2)
    scale, least = (_unpack("<e", data, block + half + lane * 2) for half in (0, 32))
    return (word >> (4 * nibble) & 15) * scale + least


def _unpack(form: str, data: bytes, at: int) -> float:
    return float(struct.unpack_from(form, data, at)[0])


def rounded_int8(weight: Tensor) -> Tensor:
    """What 8 bits should hold: the largest value of 32 is code 127."""
    blocks = weight.float().numpy().reshape(weight.shape[0], -1, 32)
    scale = (np.abs(blocks).max(2, keepdims=True) / np.float32(127)).astype(np.float16)
    wide = np.where(scale > 0, scale, 1).astype(np.float32)
    codes = np.rint(blocks / wide).clip(-127, 127) * (scale > 0)
    return torch.from_numpy((codes * scale.astype(np.float32)).reshape(weight.shape))
