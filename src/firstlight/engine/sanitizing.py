"""The sanitizer over an engine's own memory: which pages a step owns, told before it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from firstlight.attention import RowsInMemory, slot_suffix
from firstlight.core.plan import BatchPlan
from firstlight.engine.sequence import Sequence as Request
from firstlight.engine.step import Step, StepResult, rows_in_memory
from firstlight.graphs import GraphRunner
from firstlight.graphs.sanitizer import (
    GuardedArena,
    GuardedScratchArena,
    PagedMemory,
    Poison,
    Report,
    SanitizingRunner,
    TrackedRegistry,
    footprint_of_pages,
)
from firstlight.graphs.sanitizer.pieces import NOT_LOOKED_AT
from firstlight.memory import KVPool
from firstlight.memory.page_map import Translation

_LOG = logging.getLogger("firstlight.engine")


class Sanitizer:
    """What the engine is built from where ``sanitize`` is set: arenas, registry and runner.

    Attributes:
        report: the findings of all runners.

    Args:
        pool: the KV memory.
        gpu: whether kernels of a GPU attend. They read whole tiles of keys and multiply what they
            mask by zero, so poison for floats is finite there.
    """

    registry = TrackedRegistry

    def __init__(self, pool: KVPool, *, gpu: bool = False) -> None:
        device = pool.keys[0].device
        self.report = Report(NOT_LOOKED_AT if gpu else ())
        if gpu:
            _LOG.warning("the sanitizer does not look at: %s", "; ".join(NOT_LOOKED_AT))
        self.arena = GuardedArena(device)
        self.scratch = GuardedScratchArena(device)
        self._poison = Poison.FINITE if gpu else Poison.NAN
        self.sides = tuple(
            PagedMemory(_Pools(pool, i), pool.page_size, slot_suffix(side), side.window)
            for i, side in enumerate(pool.layout.sides)
        )

    @property
    def runner(self) -> Callable[..., GraphRunner]:
        """Builds a runner from the arguments of :class:`GraphRunner`."""
        return partial(
            SanitizingRunner,
            report=self.report,
            memory=self.sides,
            arena=self.arena,
            poison=self._poison,
        )


class _Pools(Mapping[str, Tensor]):
    """One side's pools as they are at every look, under the names that graphs know them by."""

    def __init__(self, pool: KVPool, side: int) -> None:
        self._pool = pool
        self._layers = [i for i, at in enumerate(pool.layout.side_of_layer) if at == side]

    def __iter__(self) -> Iterator[str]:
        for layer in self._layers:
            yield f"KV pool, keys of layer {layer}"
            yield f"KV pool, values of layer {layer}"

    def __len__(self) -> int:
        return 2 * len(self._layers)

    def __getitem__(self, name: str) -> Tensor:
        kind, _, layer = name.removeprefix("KV pool, ").partition(" of layer ")
        tensors = self._pool.keys if kind == "keys" else self._pool.values
        return tensors[int(layer)]


class SanitizingStep(Step):
    """A step that tells its runner which token slots the batch's requests hold.

    They are taken from the requests' pages and not from the slots, so that wrong metadata shows.

    Args:
        sides: of the sanitizer, in the placement's order.
        settings: as for :class:`Step`.
    """

    def __init__(self, *parts: Any, sides: Sequence[PagedMemory], **settings: Any) -> None:
        super().__init__(*parts, **settings)
        self._sides = sides

    def run(self, plan: BatchPlan[Request]) -> StepResult:
        """As :meth:`Step.run`."""
        runner = self._runners[plan.phase]
        if isinstance(runner, SanitizingRunner):
            rows = [rows_in_memory(chunk) for chunk in plan.chunks]
            maps = (pages for _, pages in self._placement.sides)
            runner.expect(
                {
                    memory.suffix: footprint_of_pages(
                        [(_physical(r, pages), r.start, r.end) for r in rows], memory
                    )
                    for memory, pages in zip(self._sides, maps, strict=True)
                }
            )
        return super().run(plan)


def _physical(rows: RowsInMemory, pages: Translation) -> Tensor:
    """int64 ``[n]``: the physical pages of a request, one lookup at a time."""
    found = [int(pages.physical(page)) for page in rows.pages]
    return torch.tensor(found, dtype=torch.int64, device="cpu")
