"""What a bucket list is expected to waste on a distribution of lengths."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from firstlight.errors import ConfigError
from firstlight.graphs.cost import BatchTimes
from firstlight.graphs.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Waste:
    """Expected cost over expected need, less one; 0.05 means five percent too much.

    Attributes:
        rows: expected rows computed / expected live rows - 1. A batch that runs eager computes its
            live rows and no more.
        time: expected ms / expected ms if every length had a graph of its own - 1, each batch run
            by graph or eager, whichever is faster; None where times are not known.
        eager: share of the batches that run eager.
        ms: expected ms of a batch; None where times are not known.
    """

    rows: float
    time: float | None
    eager: float
    ms: float | None


def expected_waste(
    buckets: Sequence[int], lengths: Lengths, times: BatchTimes | None, margin: float = 0.0
) -> Waste:
    """The waste of ``buckets``: each batch takes the smallest that holds it.

    Args:
        buckets: ascending; a batch beyond the last runs eager.
        times: without them a batch is never run eager while there is a bucket for it.
        margin: by how much, as a share of its time, eager must be faster to be preferred.
    """
    computed = live = spent = needed = eager = 0.0
    for n, weight in zip(lengths.rows, lengths.weights, strict=True):
        i = bisect_left(buckets, n)
        bucket = buckets[i] if i < len(buckets) else None
        if times is not None:
            if bucket is not None and times.replay_ms(bucket) > times.eager_ms(n) * (1 + margin):
                bucket = None
            spent += weight * (times.eager_ms(n) if bucket is None else times.replay_ms(bucket))
            needed += weight * times.ideal(n)
        live += weight * n
        computed += weight * (n if bucket is None else bucket)
        eager += weight * (bucket is None)
    known = times is not None
    if known and needed == 0:
        raise ConfigError("the times given are all zero; waste has no meaning then")
    total = lengths.total
    return Waste(
        rows=computed / live - 1,
        time=spent / needed - 1 if known else None,
        eager=eager / total,
        ms=spent / total if known else None,
    )


def sglang_ladder(cap: int) -> tuple[int, ...]:
    """SGLang's default prefill sizes, for comparison: its steps grow with the size.

    4 to 32, 16 to 256, 32 to 512, 64 to 1,024, 256 to 4,096, 512 above; a cap off that grid is not
    a size of its own.
    """
    sizes: list[int] = []
    low = 0
    for end, step in ((32, 4), (256, 16), (512, 32), (1024, 64), (4096, 256)):
        sizes += range(low + step, end + 1, step)
        low = end
    sizes += range(low + 512, max(cap, low) + 1, 512)
    return tuple(size for size in sizes if size <= cap)
