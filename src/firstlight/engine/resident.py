"""What of this process is in memory now, by what it is for, as the operating system tells it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from mmap import PAGESIZE
from pathlib import Path

import numpy as np
from torch import Tensor

from firstlight.engine.accounting import Weights
from firstlight.engine.build import Parts
from firstlight.graphs.accounting import Kind

_STATUS, _PAGEMAP = Path("/proc/self/status"), Path("/proc/self/pagemap")
_OWN = np.uint64(1 << 56)
"""A page that this process alone has; not the one of zeros that all reads of new memory share."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes of a process that serves one engine.

    Attributes:
        now, peak: of the whole process, and the most so far.
        weights: of the model, packed or not, less what a file that is mapped has.
        kv: what of the pools was written to, at any time.
        buffers: slots, intermediates and constants of graphs.
        caches: encoded and prepared pictures.
    """

    now: int
    peak: int
    weights: int
    kv: int
    buffers: int
    caches: int

    @property
    def rest(self) -> int:
        """The interpreter, libraries, tokenizer, mapped weights, what freed memory is kept."""
        return self.now - self.weights - self.kv - self.buffers - self.caches

    def describe(self) -> dict[str, int]:
        """All of it, ready for JSON."""
        return {
            "now_bytes": self.now,
            "peak_bytes": self.peak,
            "weights_bytes": self.weights,
            "kv_bytes": self.kv,
            "buffers_bytes": self.buffers,
            "caches_bytes": self.caches,
            "rest_bytes": self.rest,
        }


def resident(parts: Parts) -> Resident | None:
    """Of this process; None on a GPU, and where the system does not tell (proc_pid_status(5))."""
    if parts.gpu is not None:
        return None
    now, peak = status_bytes("VmRSS"), status_bytes("VmHWM")
    if now is None or peak is None:
        return None
    weights = Weights.of(parts.model.adapter.model)
    sums = parts.ledger.bytes_by_kind()
    encoded = parts.encoder.usage().cache.bytes
    prepared = 0 if parts.pipeline is None else parts.pipeline.usage().bytes
    return Resident(
        now=now,
        peak=peak,
        weights=weights.total - sum(weights.sizes[address] for address in weights.mapped),
        kv=touched((*parts.pool.keys, *parts.pool.values)),
        buffers=sum(n for kind, n in sums.items() if kind not in (Kind.KV, Kind.WEIGHTS)),
        caches=encoded + prepared,
    )


def status_bytes(name: str) -> int | None:
    """A line of what the system says of this process, e.g. ``VmRSS``; None if it does not."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    found = (line.split()[1] for line in lines if line.startswith(f"{name}:"))
    return next((int(kib) * 1024 for kib in found), None)


def touched(tensors: Iterable[Tensor]) -> int:
    """Bytes of these tensors of a CPU that were written to; all where the system does not tell.

    See pagemap in the kernel's documentation.
    """
    storages = [tensor.untyped_storage() for tensor in tensors]
    try:
        with _PAGEMAP.open("rb", buffering=0) as pagemap:
            return sum(_touched(pagemap.fileno(), s.data_ptr(), s.nbytes()) for s in storages)
    except OSError:
        return sum(storage.nbytes() for storage in storages)


def _touched(pagemap: int, address: int, n_bytes: int) -> int:
    first, last = address // PAGESIZE, -(-(address + n_bytes) // PAGESIZE)
    told = os.pread(pagemap, (last - first) * 8, first * 8)
    pages = np.frombuffer(told, dtype=np.uint64)
    return min(int((pages & _OWN).astype(bool).sum()) * PAGESIZE, n_bytes)
