"""The real device: ``torch.cuda``. Nothing here runs at import, and nothing without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

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

    Not yet run on a GPU; see ``docs/cuda.md``.

    Args:
        device: a CUDA device with its index.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # One stream for all captures: memory of a pool is reused on the stream it was taken on.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()
        self._open: torch.cuda.CUDAGraph | None = None

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
        graph = torch.cuda.CUDAGraph()
        # Other threads of a server may use CUDA while one captures.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        self._open = graph

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
        with suppress(RuntimeError):  # it says again what the capture failed by
            graph.capture_end()
        with suppress(RuntimeError):  # where it never came to be, there is nothing to free
            graph.reset()

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
