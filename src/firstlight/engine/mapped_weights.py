"""Weights that are mapped from a checkpoint's files: those that were replaced leave memory at once.

Pages of a mapping are resident once they were read, and stay so for as long as anything refers to
the file, so that one small weight would keep all of a checkpoint beside its packed copies.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from pathlib import Path

import numpy as np
from torch import nn

from firstlight.engine.heap import mapped_from_files

_PAGEMAP = Path("/proc/self/pagemap")
_IN_MEMORY, _SWAPPED, _OF_A_FILE = (np.uint64(1 << bit) for bit in (63, 62, 61))
_DONTNEED = 4  # madvise(2) of Linux


class MappedWeights:
    """The parameters of a model, by whether they are still there, that are mapped from files."""

    def __init__(self, model: nn.Module) -> None:
        storages = [
            (weight, weight.untyped_storage())
            for weight in model.parameters()
            if weight.device.type == "cpu"
        ]
        mapped = mapped_from_files(storage.data_ptr() for _, storage in storages)
        self._held = [
            (weakref.ref(weight), storage.data_ptr(), storage.data_ptr() + storage.nbytes())
            for weight, storage in storages
            if storage.data_ptr() in mapped
        ]

    @property
    def nbytes(self) -> int:
        """Bytes of those whose weights are still there."""
        return sum(end - start for weight, start, end in self._held if weight() is not None)

    def give_back(self) -> None:
        """Let go of the pages of all weights that no longer exist.

        Whoever still looks at one, say by a view of it, reads it from the page cache again: pages
        that somebody wrote to are kept.
        """
        gone = [(start, end) for weight, start, end in self._held if weight() is None]
        self._held = [entry for entry in self._held if entry[0]() is not None]
        kept = {start for _, start, _ in self._held}
        for start, end in gone:
            if start not in kept:  # tied weights lie at one address
                _drop(start, end)


def _drop(start: int, end: int) -> None:
    """Let go of the whole pages in between, if they are as the file has them."""
    first, last = -(-start // mmap.PAGESIZE), end // mmap.PAGESIZE
    if last > first and _as_in_the_file(first, last):
        address, n_bytes = first * mmap.PAGESIZE, (last - first) * mmap.PAGESIZE
        # Refused, they stay where they are.
        ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(n_bytes), _DONTNEED)


def _as_in_the_file(first: int, last: int) -> bool:
    """Whether no page of this range was written to; False where the system does not tell.

    A page of a private mapping is the process's own once it was written to, and no longer the
    file's: see pagemap in the kernel's documentation.
    """
    try:
        with _PAGEMAP.open("rb", buffering=0) as pagemap:
            told = os.pread(pagemap.fileno(), (last - first) * 8, first * 8)
    except OSError:
        return False
    pages = np.frombuffer(told, dtype=np.uint64)
    own = (pages & (_IN_MEMORY | _SWAPPED)).astype(bool) & ~(pages & _OF_A_FILE).astype(bool)
    return len(pages) == last - first and not own.any()
