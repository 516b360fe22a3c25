"""What the scheduler needs of the KV memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from firstlight.memory.holding import Holding, MemoryUsage
    from firstlight.memory.layout import KVLayout
    from firstlight.memory.prefix_key import PrefixKey


class PagedMemory(Protocol):
    """Pages of all requests, and the cache of prefixes. What it cannot give, it leaves untaken."""

    @property
    def page_size(self) -> int:
        """Tokens of a page."""
        ...

    @property
    def layout(self) -> KVLayout:
        """The sides: one per distinct window, and one without."""
        ...

    @property
    def n_free(self) -> int:
        """Virtual pages that nobody holds: free ones, and cached ones that can be evicted."""
        ...

    def usage(self) -> MemoryUsage:
        """Pages by state, of the virtual space and of each windowed side."""
        ...

    def pages_needed(self, capacity: int, chunk: int) -> tuple[int, ...]:
        """Pages that a request of ``capacity`` tokens takes alone when no chunk is longer than
        ``chunk``: virtual ones first, then those of each windowed side.
        """
        ...

    def start(self, key: PrefixKey, limit: int, expected: int = 0) -> Holding:
        """Hold what is cached of a request, at most ``limit`` tokens.

        Args:
            expected: as in :meth:`reserve`.
        """
        ...

    def reserve(self, holding: Holding, n_tokens: int, expected: int = 0) -> bool:
        """Hold virtual pages for the positions ``[0, n_tokens)``.

        Args:
            expected: tokens that the request may grow to, so that its pages can lie in one run.
        """
        ...

    def prepare(self, holding: Holding, start: int, end: int) -> bool:
        """Bind every windowed side's pages for the positions ``[start, end)``, to be written."""
        ...

    def advance(self, holding: Holding, computed: int) -> None:
        """Unbind windowed pages that no position from ``computed`` on can see."""
        ...

    def publish(self, holding: Holding, key: PrefixKey, computed: int) -> None:
        """Offer the full pages of ``[0, computed)`` to later requests, and the rest of it to those
        that start after the release."""
        ...

    def release(self, holding: Holding) -> None:
        """Give everything back."""
        ...

    def reset(self) -> None:
        """Begin anew with every page free; holdings from before are void."""
        ...
