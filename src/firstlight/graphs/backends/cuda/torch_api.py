"""The real device: ``torch.cuda``. Nothing here runs at import, and nothing without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

from firstlight.errors import ConfigError
from firstlight.graphs.backends.cuda.api import MemoryCounters


def why_no_cuda() -> str | None:
    """Why CUDA graphs cannot be had here, in one sentence; None if they can."""
    if torch.version.cuda is None:
        kind = "ROCm" if getattr(torch.version, "hip", None) else "CPU"
        return f"this torch ({torch.__version__}) is a {kind} build; install one built for CUDA"
    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} is built for CUDA {torch.version.cuda}, but finds no "
            "device (no NVIDIA GPU, no driver, or none visible to this process)"
        )
    return None


def cuda_device(name: str) -> torch.device:
    """The device that ``cuda`` or ``cuda:N`` names, with its index.

    Raises:
        ConfigError: there is no CUDA here, or no device of that number; with the reason.
    """
    reason = why_no_cuda()
    if reason is not None:
        raise ConfigError(f"device = {name!r}: {reason}; accepted here: 'cpu'")
    device, count = torch.device(name), torch.cuda.device_count()
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= count:
        known = ", ".join(f"'cuda:{i}'" for i in range(count))
        raise ConfigError(f"device = {name!r}: there is no such device; accepted here: {known}")
    return torch.device("cuda", index)


class TorchGraphApi:
    """:class:`~firstlight.graphs.backends.cuda.api.GraphApi` over ``torch.cuda``.

    ``verified.json`` says where it was last run. What torch's allocator asks of captures that share
    a pool is kept here:

    * A pool whose every graph is gone is dead, and capturing into it again is an error. So each
      pool has an anchor, a graph of one operation that is never replayed.
    * Where CUDA has invalidated a capture, ending it fails before the allocator is told. It would
      go on sending allocations into the pool, and let nobody else capture into it. So the
      allocator is told here, and later captures get another pool.

    Args:
        device: a CUDA device with its index.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # One stream for all captures: memory of a pool is reused on the stream it was taken on.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._mark = torch.zeros(1, device=device)
        self._pool: Any = None
        self._open: torch.cuda.CUDAGraph | None = None
        # Anchors, and graphs that could not be ended: the allocator may still know their addresses.
        self._kept: list[torch.cuda.CUDAGraph] = []

    @property
    def device(self) -> torch.device:
        """The device, with its index."""
        return self._device

    def capability(self) -> tuple[int, int]:
        """Its compute capability."""
        return torch.cuda.get_device_capability(self._device)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """The capture stream as the current one, ordered with the stream that was current."""
        before = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(before)
        try:
            with torch.cuda.stream(self._stream):
                yield
        finally:
            before.wait_stream(self._stream)

    def begin(self) -> None:
        """Start to capture; see :class:`GraphApi`."""
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._begin()
            self._mark.zero_()
            self._kept.append(self.end())
        self._begin()

    def _begin(self) -> None:
        self._open = torch.cuda.CUDAGraph()
        # Other threads of a server may use CUDA while one captures.
        self._open.capture_begin(pool=self._pool, capture_error_mode="thread_local")

    def end(self) -> torch.cuda.CUDAGraph:
        """End the capture; see :class:`GraphApi`."""
        assert self._open is not None
        self._open.capture_end()
        graph, self._open = self._open, None
        return graph

    def abort(self) -> None:
        """End a failed capture and free it; see :class:`GraphApi`."""
        graph, self._open = self._open, None
        if graph is None:
            return
        try:
            graph.capture_end()
        except RuntimeError:  # it says again what the capture failed by
            self._abandon(graph)
        else:
            graph.reset()

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Take a capture that cannot be ended away from the allocator."""
        index, pool = self._device.index, self._pool
        with suppress(RuntimeError):  # it knew already: the graph failed later than that
            torch._C._cuda_endAllocateToPool(index, pool)
            torch._C._cuda_releasePool(index, pool)
        with suppress(RuntimeError):
            graph.reset()
        self._kept.append(graph)
        self._pool = None

    def synchronise(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize(self._device)

    def counters(self) -> MemoryCounters:
        """The device's memory now."""
        free, total = torch.cuda.mem_get_info(self._device)
        return MemoryCounters(
            free,
            total,
            torch.cuda.memory_reserved(self._device),
            torch.cuda.memory_allocated(self._device),
            torch.cuda.max_memory_allocated(self._device),
        )

    def forget_peak(self) -> None:
        """Count the peak from now on."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def release_unused(self) -> None:
        """Give unused memory back to the driver."""
        torch.cuda.empty_cache()
