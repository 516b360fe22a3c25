"""What small paged decoders of tests have in common: the rows they declare, and their pages."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from firstlight.contract import InputContract, Plane, PlaneDType, resolve_contract
from firstlight.graphs.proof import Placed

HIDDEN, EXTRA, HEADS = 16, 8, 2
PAGE, PAGES, MAX_CONTEXT = 4, 24, 24
MAX_PAGES = MAX_CONTEXT // PAGE


class Declarer:
    """What a model class would say of its rows."""

    input_segments = (("tokens", HIDDEN), ("deepstack.0", EXTRA), ("deepstack.1", EXTRA))
    input_planes = (
        Plane("types", dtype=PlaneDType.INT64, index=True),
        Plane("layer_embeds", (4,), neutral=1),
    )


CONTRACT: InputContract = resolve_contract([Declarer], HIDDEN, position_rank=3)


class FreePages:
    """Who has which page; page 0 is the sink. What a ProofMemory needs beside its tensors."""

    unit_tokens = PAGE
    sink: int | None = 0
    max_context = MAX_CONTEXT

    def __init__(self) -> None:
        self.free = list(range(1, PAGES))

    @property
    def free_units(self) -> int:
        """Pages to lend."""
        return len(self.free)

    def lend(self, n: int) -> Sequence[int]:
        """The first free pages."""
        given, self.free = self.free[:n], self.free[n:]
        return given

    def give_back(self, units: Sequence[int]) -> None:
        """Free pages again."""
        self.free = sorted([*self.free, *units])

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        """Write locations, page table and facts of each request."""
        table = torch.zeros(len(requests), MAX_PAGES, dtype=torch.int32)
        facts, places, first = [], [], 0
        for i, r in enumerate(requests):
            table[i, : len(r.units)] = torch.tensor(r.units)
            facts.append([first, len(r), r.end, -1])
            places += [r.units[p // PAGE] * PAGE + p % PAGE for p in range(r.start, r.end)]
            first += len(r)
        return {
            "write_locations": torch.tensor(places),
            "page_table": table,
            "attention_rows": torch.tensor(facts),
        }
