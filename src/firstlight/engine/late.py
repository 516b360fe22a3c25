"""Graphs that a start leaves for later: captured and proven one by one when nothing runs.

A proof replays its graph once, at its whole length; for a large model the proofs of the longer
buckets take most of a start. A server need not wait for them: until a bucket is proven, its batches
run eager, and say so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn

from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine.accounting import Weights
from firstlight.engine.costs import Costs, settle_costs
from firstlight.errors import CaptureError
from firstlight.graphs import BucketFailure, BucketState, CaptureReport, GraphRunner
from firstlight.graphs.proof import ProofLevel
from firstlight.graphs.proof.cases import GUARDS
from firstlight.memory import KVMemory

FIRST_WORK = 12 * 10**9
"""Bytes of weights times rows, over the buckets of a start: a bfloat16 decoder of 100 million
weights proves those of 16 and 32 rows, one of a million those up to 896."""

_LOG = logging.getLogger("firstlight.engine")


def may_be_late(config: EngineConfig) -> bool:
    """Whether buckets can be left for later.

    Not on a GPU, whose KV pool gets its size when all graphs are there; not where the order of all
    replays is proven as well, or watched.
    """
    return not config.on_gpu and not config.sanitize and config.proof != ProofLevel.FULL


def first_buckets(decoder: nn.Module, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The prefill buckets of a start: the smallest one, and the next as :data:`FIRST_WORK` allows.

    A function of the model's size, so that equal starts leave equal buckets.

    Args:
        decoder: as it will run, with its modules fused.
    """
    weights = Weights.of(decoder).total
    embeddings = [m for m in decoder.modules() if isinstance(m, nn.Embedding)]
    weights -= sum(Weights.of(module).total for module in embeddings)
    found: list[int] = []
    for size in sizes:
        if found and (sum(found) + size) * weights > FIRST_WORK:
            break
        found.append(size)
    return tuple(found)


def provable_rows(kv: KVMemory, max_context: int) -> int:
    """Rows of the longest bucket that any proof finds pages for, on every side of the memory.

    Args:
        max_context: tokens of one request; beside its rows, a batch sees at most so many, and on a
            windowed side the window.
    """
    size = kv.page_size
    found = kv.n_free * size - max_context
    for side in kv.windows:
        # Two pages guard the batch, and two are in part of a window or of a chunk.
        beside = min(side.spec.window or 0, max_context) + (GUARDS + 2) * size
        found = min(found, side.n_available * size - beside)
    return found


@dataclass(slots=True, eq=False)
class LateGraphs:
    """What is left of the captures; only whoever steps the engine may call :meth:`next`.

    Attributes:
        captures: reports by phase; what is done later is added to them.
        seconds: what measuring the costs of a phase may take; None is a share of its capture.
    """

    runners: Mapping[Phase, GraphRunner]
    captures: dict[Phase, CaptureReport]
    costs: Costs
    seconds: float | None = None
    _settled: set[Phase] = field(default_factory=set)

    @property
    def left(self) -> int:
        """Buckets that are not captured, or not proven."""
        return sum(len(runner.late) for runner in self.runners.values())

    def next(self) -> bool:
        """Capture and prove the smallest bucket that is left; between batches, when none runs.

        Pages are borrowed for it: of those that nobody holds, the prefix cache's last. A call after
        the last bucket of a phase measures what padding costs in it.

        Returns:
            False if there was nothing to do.
        """
        found = next(self._open(), None)
        if found is None:
            return self.settle()
        phase, bucket = found
        runner, began = self.runners[phase], time.perf_counter()
        try:
            report = runner.complete(bucket)
        except (CaptureError, RuntimeError, MemoryError) as error:
            failure = BucketFailure(bucket, str(error))
            took = time.perf_counter() - began
            self.captures[phase] = self.captures[phase].with_failure(failure, took)
        else:
            took = time.perf_counter() - began
            self.captures[phase] = self.captures[phase].with_bucket(report, took)
        if (state := runner.buckets.state(bucket)) is not BucketState.READY:
            why = runner.buckets.why(bucket)
            _LOG.warning("the %s graph of %d rows: %s: %s", phase.value, bucket, state.value, why)
        if not self.left:
            _LOG.info("no graph is left to be proven")
        return True

    def next_beside(self, rows: int) -> bool:
        """As :meth:`next`, while requests run: only a bucket of at most ``rows``.

        Args:
            rows: see :func:`provable_rows`; a proof for which pages are short would count as
                failed.
        """
        found = next(self._open(), None)
        return True if found is not None and found[1] > rows else self.next()

    def settle(self) -> bool:
        """Measure what padding costs in each phase of which no bucket is left, once.

        Returns:
            False if there was nothing to do.
        """
        ready = {
            phase: cost
            for phase, cost in self.costs.items()
            if phase not in self._settled and not self.runners[phase].late
        }
        self._settled |= ready.keys()
        settle_costs(ready, self.runners, self.captures, self.seconds)
        return bool(ready)

    def _open(self) -> Iterator[tuple[Phase, int]]:
        for phase, runner in self.runners.items():
            for bucket in runner.late:
                yield phase, bucket
