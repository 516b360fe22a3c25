"""The paged KV pool as proofs see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from firstlight.attention import RowsInMemory, attention_values
from firstlight.engine.memory_plan import MemoryPlan
from firstlight.graphs.proof import Placed
from firstlight.memory import SINK_PAGE, KVPool, PageAllocator, PhysicalPage


class PoolMemory:
    """Lends pages of the engine's own allocator, and places batches as a step does."""

    sink: int | None = int(SINK_PAGE)

    def __init__(self, pool: KVPool, pages: PageAllocator, plan: MemoryPlan) -> None:
        self._pool = pool
        self._pages = pages
        self._plan = plan

    @property
    def unit_tokens(self) -> int:
        """Tokens of a page."""
        return self._plan.page_size

    @property
    def max_context(self) -> int:
        """Tokens of one request."""
        return self._plan.max_context

    @property
    def free_units(self) -> int:
        """Free pages."""
        return self._pages.n_free

    def state(self) -> Mapping[str, Tensor]:
        """Keys and values ``[pages, page_size, kv_heads, dim]`` of every layer."""
        found: dict[str, Tensor] = {}
        pairs = zip(self._pool.keys, self._pool.values, strict=True)
        for layer, (keys, values) in enumerate(pairs):
            found[f"keys of layer {layer}"] = keys
            found[f"values of layer {layer}"] = values
        return found

    def lend(self, n: int) -> Sequence[int]:
        """Pages, ascending."""
        return sorted(int(page) for page in self._pages.allocate(n))

    def give_back(self, units: Sequence[int]) -> None:
        """Free the pages."""
        self._pages.free([PhysicalPage(unit) for unit in units])

    def values(self, requests: Sequence[Placed]) -> Mapping[str, Tensor]:
        """Write locations, page table and attention rows, as :class:`Step` makes them."""
        rows = [
            RowsInMemory([PhysicalPage(unit) for unit in r.units], r.start, r.end) for r in requests
        ]
        plan = self._plan
        return attention_values(rows, page_size=plan.page_size, max_pages=plan.max_pages)
