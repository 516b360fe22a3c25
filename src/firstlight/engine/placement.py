"""Where the requests of one engine live, as the attention slots say it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from firstlight.attention import RowsInMemory, attention_values
from firstlight.contract import InputContract, MaskKind
from firstlight.engine.memory_plan import MemoryPlan
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import SideSpec
from firstlight.memory.page_map import Translation


@dataclass(frozen=True, slots=True)
class Placement:
    """Translates pages for a step; the one place that knows sizes, sides and mask of an engine.

    Attributes:
        sides: each side with its map of virtual to physical pages.
    """

    sides: tuple[tuple[SideSpec, Translation], ...]
    page_size: int
    max_pages: int
    prefix_lm: bool

    @classmethod
    def of(cls, memory: KVMemory, plan: MemoryPlan, contract: InputContract) -> Placement:
        """The placement of an engine's own memory."""
        return cls(
            tuple(zip(memory.layout.sides, memory.maps, strict=True)),
            plan.page_size,
            plan.max_pages,
            contract.mask is MaskKind.PREFIX_LM,
        )

    def values(self, rows: Sequence[RowsInMemory]) -> dict[str, Tensor]:
        """The live part of all attention slots for a batch."""
        return attention_values(
            rows,
            sides=self.sides,
            page_size=self.page_size,
            max_pages=self.max_pages,
            prefix_lm=self.prefix_lm,
        )
