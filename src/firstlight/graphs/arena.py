"""Memory that captured graphs read and write: allocated once, never moved, never freed while held.

Two kinds exist. :class:`Arena` holds named static buffers and lets runners share them: requests for
the same name, size, dtype and device get the same memory. :class:`ScratchArena` holds the
intermediates of taped graphs; all graphs of a process overlay each other in it, because only one
of them runs at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

ALIGNMENT = 64  # bytes: one cache line, and the width of the widest vector load


def aligned(n_bytes: int) -> int:
    """``n_bytes`` rounded up to a multiple of :data:`ALIGNMENT`."""
    return -(-n_bytes // ALIGNMENT) * ALIGNMENT


class Arena:
    """Static buffers shared by name, bytes, dtype and device.

    One object is made per process and handed to every registry; a second arena shares nothing with
    the first. Sharing is safe because forwards run one after another and each fills its buffers
    right before use. A buffer that was handed out keeps its address for the life of the arena: a
    request of another size gets memory of its own and displaces nothing.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._buffers: dict[tuple[str, int, torch.dtype, torch.device], torch.Tensor] = {}

    def buffer(
        self,
        name: str,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> tuple[torch.Tensor, bool]:
        """A contiguous buffer of ``shape`` and whether it is new (then it is all zeros)."""
        device = self.device if device is None else device
        n_bytes = prod(shape) * dtype.itemsize
        key = (name, n_bytes, dtype, device)
        fresh = key not in self._buffers
        if fresh:
            # A tensor born in inference mode could not be written outside of it.
            with torch.inference_mode(False):
                self._buffers[key] = self._allocate(name, prod(shape), dtype, device)
        return self._buffers[key].view(tuple(shape)), fresh

    def _allocate(
        self, name: str, n: int, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """``n`` zeros for the buffer ``name``."""
        return torch.zeros(n, dtype=dtype, device=device)

    @property
    def bytes(self) -> int:
        """Bytes of all buffers handed out."""
        return sum(buf.untyped_storage().nbytes() for buf in self._buffers.values())


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of scratch memory; ``fresh`` bytes of it were allocated for this reservation."""

    storage: torch.UntypedStorage
    fresh: int


class ScratchArena:
    """Memory for the intermediates of graphs that never run at the same time.

    The largest graph is captured first and sizes the first block; later ones fit into it. A graph
    that needs more gets a further block: blocks are never resized, moved or dropped, so that an
    address inside a captured graph stays right.
    """

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._blocks: list[torch.UntypedStorage] = []

    def reserve(self, n_bytes: int) -> Block:
        """The smallest block of at least ``n_bytes``, newly allocated if there is none."""
        fitting = [block for block in self._blocks if block.nbytes() >= n_bytes]
        if fitting:
            return Block(min(fitting, key=lambda block: block.nbytes()), 0)
        size = max(aligned(n_bytes), ALIGNMENT)
        storage = torch.empty(size, dtype=torch.uint8, device=self.device).untyped_storage()
        self._blocks.append(storage)
        return Block(storage, size)

    @property
    def bytes(self) -> int:
        """Bytes of all blocks."""
        return sum(block.nbytes() for block in self._blocks)
