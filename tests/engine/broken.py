"""Faults of scheduler and memory, to see that the tests would show them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from firstlight.memory.holding import Holding
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import SideSpec
from firstlight.memory.prefix_key import PrefixKey


def blind_key(patch: pytest.MonkeyPatch) -> None:
    """All pictures of a size are one for the cache."""
    plain = PrefixKey._mixed

    def mixed(self: PrefixKey, at: int, start: int, end: int) -> tuple[object, ...]:
        key = plain(self, at, start, end)
        return tuple(("", *p[1:]) if isinstance(p, tuple) else p for p in key)

    patch.setattr(PrefixKey, "_mixed", mixed)


def hasty_window(patch: pytest.MonkeyPatch) -> None:
    """Pages leave a window one token too early."""
    plain = SideSpec.first_seen
    patch.setattr(KVMemory, "advance", _advance_with(lambda s, p: plain(s, p + 1)))


def _advance_with(first_seen: Callable[[SideSpec, int], int]) -> Callable[..., None]:
    plain = KVMemory.advance

    def advance(self: KVMemory, holding: Holding, computed: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(SideSpec, "first_seen", first_seen)
            plain(self, holding, computed)

    return advance


def uncounted_hit(patch: pytest.MonkeyPatch) -> None:
    """A hit takes no reference, so that its pages are evicted under it."""
    plain = KVMemory.start

    def start(self: KVMemory, key: PrefixKey, limit: int, expected: int = 0) -> Holding:
        holding = plain(self, key, limit, expected)
        for page in holding.pages:
            self.counts[page] -= 1
        self.tree.rest([p for p in reversed(holding.pages) if self.counts[p] == 1])
        return holding

    patch.setattr(KVMemory, "start", start)


def unbound_hit(patch: pytest.MonkeyPatch) -> None:
    """A hit ends where the windowed sides have nothing any more."""
    patch.setattr("firstlight.memory.hit._bound_end", lambda windows, size, path, end: end)


def cut_block(patch: pytest.MonkeyPatch) -> None:
    """Chunks end anywhere, inside of blocks too."""
    patch.setattr("firstlight.engine.scheduling.scheduler.cut", lambda blocks, start, end: end)
