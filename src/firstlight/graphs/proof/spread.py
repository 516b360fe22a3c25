"""How far eager runs of one batch at different shapes lie apart: the measure of what may differ.

On a CPU the same shape runs the same kernels, and a replay equals eager bit for bit. On a GPU a
library may choose another algorithm where an address or a workspace differs, and sum in another
order. By how much is measured, not guessed: the same rows run eager at other shapes, where other
algorithms are chosen. A lost, stale or foreign row differs by the size of the outputs themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from firstlight.graphs.proof.bench import Bench, Outcome
from firstlight.graphs.proof.compare import largest, scale_of
from firstlight.graphs.proof.contents import Batch

MARGIN = 2.0
"""Times the spread that a replay may differ by: few shapes are tried, and not the worst of all."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The largest differences between eager runs of one batch.

    Attributes:
        size: absolute, of outputs and of what was stored.
        scale: the largest output.
        shapes: the rows that were run.
    """

    size: float
    scale: float
    shapes: tuple[int, ...]

    @property
    def relative(self) -> float:
        """:attr:`size` in units of the largest output."""
        return self.size / (self.scale or 1.0)

    @property
    def tolerance(self) -> float:
        """What a replay may differ by, absolute."""
        return MARGIN * self.size


def eager_spread(bench: Bench, batch: Batch) -> Spread:
    """Run ``batch`` eager at its bucket's shape, unpadded, and at larger shapes."""
    bucket, capacity = bench.subject.bucket, bench.subject.registry.capacity.tokens
    base = bench.eager(batch)
    shapes = sorted({batch.live.tokens, min(bucket + 1, capacity), min(2 * bucket, capacity)})
    gaps = [0.0]
    for rows in shapes:
        gaps += _gaps(bench, bench.eager(batch, rows=rows), base)
    return Spread(max(gaps), scale_of(base.hidden), (bucket, *shapes))


def _gaps(bench: Bench, found: Outcome, base: Outcome) -> Iterator[float]:
    yield largest(found.hidden, base.hidden)
    skip = 0 if bench.memory.sink is None else 1
    for name, values in found.state.items():
        yield largest(values[skip:], base.state[name][skip:])


def dtype_limit(dtype: torch.dtype) -> float:
    """The relative spread beyond which a body's own runs say too little to prove anything by."""
    return {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2}.get(dtype, 1e-1)
