"""What a backend asks of CUDA, and no more: all else is tested without a GPU."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class MemoryCounters:
    """Bytes of one device.

    Attributes:
        free, total: of the whole device, as the driver says, other processes included.
        reserved: what torch's allocator holds of it, in use or not.
        allocated: what tensors of this process use.
        peak: the most that they used since :meth:`GraphApi.forget_peak`.
    """

    free: int
    total: int
    reserved: int
    allocated: int
    peak: int


class CapturedPiece(Protocol):
    """Work that was captured between a ``begin`` and an ``end``."""

    def replay(self) -> None:
        """Issue it on the current stream."""
        ...


class GraphApi(Protocol):
    """One device with one capture stream and one memory pool, which all captures share."""

    @property
    def device(self) -> torch.device:
        """The device, with its index."""
        ...

    def capability(self) -> tuple[int, int]:
        """Its compute capability, e.g. ``(9, 0)``."""
        ...

    def stream(self) -> AbstractContextManager[None]:
        """Makes the capture stream current: it first waits for all work that was issued before,
        and what is issued afterwards waits for it."""
        ...

    def begin(self) -> None:
        """Start to capture what is issued to the capture stream; nothing of it runs."""
        ...

    def end(self) -> CapturedPiece:
        """End the capture.

        Raises:
            RuntimeError: something in it cannot be captured; :meth:`abort` must follow.
        """
        ...

    def abort(self) -> None:
        """End a capture that failed, and free what it had; harmless where none is open."""
        ...

    def synchronise(self) -> None:
        """Wait for all work of the device.

        Raises:
            RuntimeError: some of it failed.
        """
        ...

    def counters(self) -> MemoryCounters:
        """The device's memory now."""
        ...

    def forget_peak(self) -> None:
        """Count the peak from now on."""
        ...

    def release_unused(self) -> None:
        """Give memory that no tensor uses back to the driver."""
        ...
