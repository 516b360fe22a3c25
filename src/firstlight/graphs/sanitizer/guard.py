"""Arenas with guard bands: bytes beside each buffer that nobody may write."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from firstlight.graphs.arena import Arena, Block, ScratchArena
from firstlight.graphs.sanitizer.memory import compact
from firstlight.graphs.sanitizer.poison import is_poison, poison_

GUARD = 4096  # bytes on each side; a multiple of every alignment that kernels ask for


class GuardedArena(Arena):
    """An :class:`Arena` whose buffers lie between two bands of poison."""

    def __init__(self, device: torch.device | str = "cpu") -> None:
        super().__init__(device)
        self._bands: list[tuple[str, Tensor, Tensor]] = []

    def _allocate(
        self, name: str, n: int, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        band = GUARD // dtype.itemsize
        whole = torch.zeros(n + 2 * band, dtype=dtype, device=device)
        before, after = whole[:band], whole[band + n :]
        for guard in (before, after):
            poison_(guard)
        self._bands.append((name, before, after))
        return whole[band : band + n]

    def damage(self) -> Iterator[tuple[str, str]]:
        """Slots whose guard bands were written, with the elements; the bands are repaired."""
        for name, before, after in self._bands:
            if before.dtype is torch.bool:
                continue
            for side, guard in (("before", before), ("behind", after)):
                wrong = is_poison(guard).logical_not().nonzero().flatten()
                if len(wrong):
                    offsets = wrong - len(guard) if side == "before" else wrong
                    yield name, f"elements {compact(offsets.tolist())} {side} the buffer"
                    poison_(guard)


class GuardedScratchArena(ScratchArena):
    """A :class:`ScratchArena` whose blocks are longer than any graph's intermediates need."""

    def reserve(self, n_bytes: int) -> Block:
        """The smallest block that leaves a guard band behind ``n_bytes``."""
        return super().reserve(n_bytes + GUARD)
