"""The paged KV pools as proofs see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from firstlight.attention import RowsInMemory
from firstlight.engine.memory_plan import MemoryPlan
from firstlight.engine.placement import Placement
from firstlight.errors import CapacityError
from firstlight.graphs.proof import Placed
from firstlight.memory import SINK_PAGE, KVPool
from firstlight.memory.holding import Holding
from firstlight.memory.ids import VIRTUAL_SINK, VirtualPage
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import SideSpec
from firstlight.memory.page_map import Translation
from firstlight.memory.prefix_key import PrefixKey
from firstlight.memory.window_side import WindowSide


class PoolMemory:
    """Lends pages of the engine's own memory, and places batches as a step does.

    A unit is a virtual page. On windowed sides, only what a batch sees is bound.
    """

    sink: int | None = int(SINK_PAGE)

    def __init__(
        self, pool: KVPool, memory: KVMemory, plan: MemoryPlan, placement: Placement
    ) -> None:
        self._pool = pool
        self._memory = memory
        self._plan = plan
        self._placement = placement
        self._lent: dict[tuple[int, ...], Holding] = {}
        self._bound: list[set[int]] = [set() for _ in memory.windows]

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
        """Virtual pages that can be had now."""
        return self._memory.n_free

    def state(self) -> Mapping[str, Tensor]:
        """Keys and values ``[pages, page_size, kv_heads, dim]`` of every layer."""
        found: dict[str, Tensor] = {}
        pairs = zip(self._pool.keys, self._pool.values, strict=True)
        for layer, (keys, values) in enumerate(pairs):
            found[f"keys of layer {layer}"] = keys
            found[f"values of layer {layer}"] = values
        return found

    def lend(self, n: int) -> Sequence[int]:
        """Virtual pages, ascending; no windowed side binds any yet."""
        holding = self._memory.start(PrefixKey([], (), self._plan.page_size), 0)
        if not self._memory.reserve(holding, n * self._plan.page_size):
            raise CapacityError(f"{n} pages are to be lent and {self.free_units} are free")
        units = tuple(sorted(int(page) for page in holding.pages))
        self._lent[units] = holding
        return units

    def give_back(self, units: Sequence[int]) -> None:
        """Unbind the pages on every side and free them."""
        for side, bound in zip(self._memory.windows, self._bound, strict=True):
            _unbind(side, bound & set(units))
            bound -= set(units)
        self._memory.release(self._lent.pop(tuple(units)))

    def fits(self, requests: Sequence[tuple[int, int]]) -> bool:
        """Whether each windowed side has room for what rows at ``[start, end)`` see."""
        return all(
            sum(len(_seen(Placed((), *r), side, self.unit_tokens)) for r in requests)
            <= side.n_available + len(bound)
            for side, bound in zip(self._memory.windows, self._bound, strict=True)
        )

    def bind(self, requests: Sequence[Placed]) -> None:
        """Bind on each windowed side what the requests see or write, and nothing else."""
        for side, bound in zip(self._memory.windows, self._bound, strict=True):
            wanted = {
                request.units[i]
                for request in requests
                for i in _seen(request, side, self.unit_tokens)
            }
            _unbind(side, bound - wanted)
            missing = [VirtualPage(unit) for unit in sorted(wanted - bound)]
            if missing:
                side.bind(missing, after=VIRTUAL_SINK, expected=len(missing))
            bound.clear()
            bound |= wanted

    def rows(self, name: str, units: Sequence[int]) -> Sequence[int]:
        """Physical pages of the side whose layer the tensor belongs to."""
        _, pages = self._side(name)
        found: list[int] = pages.translate(np.array(units, dtype=np.int64)).tolist()
        return found

    def window(self, name: str) -> int | None:
        """The window of the side whose layer the tensor belongs to."""
        spec, _ = self._side(name)
        return spec.window

    def values(self, requests: Sequence[Placed]) -> Mapping[str, Tensor]:
        """All attention slots, as a step makes them; single rows are taken for decodes."""
        return self._placement.values(
            [
                RowsInMemory(
                    [VirtualPage(u) for u in r.units],
                    r.start,
                    r.end,
                    r.blocks,
                    is_prompt=r.end - r.start > 1,
                )
                for r in requests
            ]
        )

    def _side(self, name: str) -> tuple[SideSpec, Translation]:
        layer = int(name.rpartition(" ")[2])
        return self._placement.sides[self._plan.layout.side_of_layer[layer]]


def _seen(request: Placed, side: WindowSide, page_size: int) -> range:
    """Numbers of the request's pages that its rows see or write on a windowed side."""
    first = side.spec.first_seen(request.start) // page_size
    return range(first, -(-request.end // page_size))


def _unbind(side: WindowSide, units: set[int]) -> None:
    pages = [VirtualPage(unit) for unit in sorted(units)]
    side.leave(pages)
    side.drop(pages)  # where bindings outlive their use, for the prefix cache
