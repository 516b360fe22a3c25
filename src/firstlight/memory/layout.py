"""Which layers share a pool of pages.

A *side* is one pool with its own physical pages and its own page map. Layers that attend to the
whole context share the side ``full``; layers with a sliding window of ``w`` tokens share the side
``window_w``, whose pages come free again once every window has moved past them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from firstlight.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SideSpec:
    """One side: its name and its sliding window in tokens, ``None`` for the whole context.

    A query at position ``p`` sees the keys at ``(p - window, p]``, itself among them.
    """

    name: str
    window: int | None

    def first_seen(self, position: int) -> int:
        """The earliest position that a query at ``position`` sees."""
        return 0 if self.window is None else max(position - self.window + 1, 0)


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The sides of a model, ``full`` first and then by window, and each layer's side by index."""

    sides: tuple[SideSpec, ...]
    side_of_layer: tuple[int, ...]

    @classmethod
    def of(cls, windows: Sequence[int | None], max_context: int) -> KVLayout:
        """The layout of layers with these sliding windows in tokens, one entry a layer.

        A window that covers ``max_context`` tokens hides nothing, so such a layer counts as full. A
        model whose layers all slide has no side ``full``.

        Raises:
            ConfigError: there is no layer, or a window is below one token.
        """
        if not windows:
            raise ConfigError("a KV layout needs at least one attention layer")
        wrong = [window for window in windows if window is not None and window < 1]
        if wrong:
            raise ConfigError(f"sliding window = {wrong[0]}; accepted: at least 1 token, or none")
        effective = [w if w is not None and w < max_context else None for w in windows]
        distinct = sorted(set(effective), key=lambda w: w or 0)
        sides = tuple(
            SideSpec("full" if window is None else f"window_{window}", window)
            for window in distinct
        )
        return cls(sides, tuple(distinct.index(window) for window in effective))
