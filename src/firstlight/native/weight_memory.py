"""Where packed weights lie: one behind the other in large pages, where the system has them.

A decode step reads all weights once. In pages of 4 KiB the processor looks up an address for each
of them, which takes a part of the time that reading takes (madvise(2), ``MADV_HUGEPAGE``).
"""

from __future__ import annotations

import mmap
from contextlib import suppress
from threading import Lock

import torch
from torch import Tensor

from firstlight.fresh_memory import fresh_pages

LARGE_PAGE = 2 << 20
_CHUNK = 64 << 20
_LINE = 64


class WeightMemory:
    """Hands out places for weights; a chunk lives for as long as any weight in it does."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._chunk: mmap.mmap | None = None
        self._next = self._end = 0

    def take(self, n_bytes: int) -> Tensor:
        """Zeros, uint8 ``[n_bytes]``, from the beginning of a cache line on; a storage of its own.

        Raises:
            MemoryError: the system refuses it.
        """
        if n_bytes == 0:
            return torch.zeros(0, dtype=torch.uint8)
        with self._lock:
            chunk = self._chunk
            if chunk is None or self._next + n_bytes > self._end:
                chunk = self._open(n_bytes)
            place = self._next
            self._next += -(-n_bytes // _LINE) * _LINE
        return torch.frombuffer(chunk, dtype=torch.uint8, count=n_bytes, offset=place)

    def _open(self, n_bytes: int) -> mmap.mmap:
        """A chunk with room for so many bytes, which begin with a large page."""
        size = max(_CHUNK, -(-n_bytes // LARGE_PAGE) * LARGE_PAGE) + LARGE_PAGE
        try:
            chunk = fresh_pages(size)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"the system refuses {size} bytes: {error}") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a system without large pages
                chunk.madvise(mmap.MADV_HUGEPAGE)
        address = torch.frombuffer(chunk, dtype=torch.uint8, count=1).data_ptr()
        self._chunk, self._next, self._end = chunk, -address % LARGE_PAGE, size
        return chunk
