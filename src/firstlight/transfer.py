"""Host values to the device that a step runs on and back, without waiting for it.

A copy from ordinary memory to a GPU waits until the GPU has come to it, which is everything that
was queued before. From page-locked memory it is queued like a kernel; torch's allocator for such
memory keeps a block until the copies out of it are done. A copy to the host is queued likewise,
with an event behind it that can be waited for later. On a CPU nothing is copied at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True, eq=False)
class Arriving:
    """Values on their way to the host.

    Attributes:
        values: where they will be, in host memory.
        event: behind the copies in the device's queue; None if there is nothing to wait for.
    """

    values: tuple[Tensor, ...]
    event: torch.cuda.Event | None = None

    def wait(self) -> list[list[Any]]:
        """The values as lists, once they are there: the one place where a step waits."""
        if self.event is not None:
            self.event.synchronize()
        return list(map(Tensor.tolist, self.values))


def to_host(values: Sequence[Tensor], device: torch.device) -> Arriving:
    """Start to copy values of ``device`` to the host; what is queued later does not delay them.

    Without values it still marks how far the device has to come.
    """
    if device.type != "cuda":
        return Arriving(tuple(values))
    landed = tuple(torch.empty(v.shape, dtype=v.dtype, pin_memory=True) for v in values)
    for target, value in zip(landed, values, strict=True):
        target.copy_(value, non_blocking=True)
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return Arriving(landed, event)
