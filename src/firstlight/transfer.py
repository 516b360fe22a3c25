"""Host values to the device that a step runs on, without waiting for it.

A copy from ordinary memory to a GPU waits until the GPU has come to it, which is everything that
was queued before. From page-locked memory it is queued like a kernel; torch's allocator for such
memory keeps a block until the copies out of it are done. On a CPU nothing is copied at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def to_device(value: Tensor, device: torch.device) -> Tensor:
    """``value`` on ``device``; itself if it is there."""
    if value.device == device:
        return value
    return _locked(value, device).to(device, non_blocking=True)


def on_device(
    values: Sequence[int] | Sequence[float], dtype: torch.dtype, device: torch.device
) -> Tensor:
    """A tensor ``[n]`` of host numbers on ``device``."""
    return to_device(torch.tensor(values, dtype=dtype), device)


def fill_from(target: Tensor, value: Tensor) -> None:
    """Copy ``value``, of the same shape, into ``target``."""
    if value.device == target.device:
        target.copy_(value)
    else:
        target.copy_(_locked(value, target.device), non_blocking=True)


def _locked(value: Tensor, device: torch.device) -> Tensor:
    crosses = value.device.type == "cpu" and device.type == "cuda"
    return value.pin_memory() if crosses else value
