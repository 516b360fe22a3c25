"""The sanitizer over an engine's own memory: which pages a step owns, told before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from firstlight.attention import RowsInMemory
from firstlight.core.plan import BatchPlan
from firstlight.engine.sequence import Sequence as Request
from firstlight.engine.step import Step, StepResult, rows_in_memory
from firstlight.graphs import GraphRunner
from firstlight.graphs.sanitizer import (
    Footprint,
    GuardedArena,
    GuardedScratchArena,
    PagedMemory,
    Report,
    SanitizingRunner,
    TrackedRegistry,
    token_slots,
)
from firstlight.memory import KVPool


class Sanitizer:
    """What the engine is built from where ``sanitize`` is set: arenas, registry and runner.

    Attributes:
        report: the findings of all runners.
    """

    registry = TrackedRegistry

    def __init__(self, pool: KVPool) -> None:
        self.report = Report()
        self.arena = GuardedArena()
        self.scratch = GuardedScratchArena()
        self._memory = PagedMemory(_Pools(pool), pool.page_size)

    @property
    def runner(self) -> Callable[..., GraphRunner]:
        """Builds a runner from the arguments of :class:`GraphRunner`."""
        return partial(SanitizingRunner, report=self.report, memory=self._memory, arena=self.arena)


class _Pools(Mapping[str, Tensor]):
    """The pools as they are at every look, under the names that graphs know them by."""

    def __init__(self, pool: KVPool) -> None:
        self._pool = pool

    def __iter__(self) -> Iterator[str]:
        for layer in range(len(self._pool.keys)):
            yield f"KV pool, keys of layer {layer}"
            yield f"KV pool, values of layer {layer}"

    def __len__(self) -> int:
        return 2 * len(self._pool.keys)

    def __getitem__(self, name: str) -> Tensor:
        kind, _, layer = name.removeprefix("KV pool, ").partition(" of layer ")
        tensors = self._pool.keys if kind == "keys" else self._pool.values
        return tensors[int(layer)]


class SanitizingStep(Step):
    """A step that tells its runner which token slots the batch's requests hold.

    They are taken from the requests' pages and not from the slots, so that wrong metadata shows.
    """

    def run(self, plan: BatchPlan[Request]) -> StepResult:
        """As :meth:`Step.run`."""
        runner = self._runners[plan.phase]
        if isinstance(runner, SanitizingRunner):
            rows = [rows_in_memory(chunk) for chunk in plan.chunks]
            runner.expect(footprint(rows, self._placement.page_size))
        return super().run(plan)


def footprint(rows: Sequence[RowsInMemory], page_size: int) -> Footprint:
    """The token slots of a batch's contexts and of its new rows."""
    reads, writes = [], []
    for request in rows:
        pages = torch.tensor([int(page) for page in request.pages], dtype=torch.int64)
        context = token_slots(pages, request.end, page_size)
        reads.append(context)
        writes.append(context[request.start :])
    return Footprint(torch.cat(reads), torch.cat(writes))
