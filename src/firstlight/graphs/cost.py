"""What a batch costs by graph and eager, as far as it was measured, and what follows from it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import inf

from firstlight.errors import ConfigError

MARGIN = 0.10
"""By how much eager must beat a replay before a batch runs eager, as a share of the eager time.

Estimates come from a handful of runs on a machine that may be busy. The best runs of a loaded
two-core machine differed from start to start by a few percent, so that a batch whose two times
are about equal would change sides by chance; within the margin the graph is kept.
"""


@dataclass(frozen=True, slots=True)
class CostCurve:
    """Milliseconds by rows, never falling, linear between measured points.

    Below the first point the curve is flat: fewer rows never take longer. Beyond the last it goes
    on at the lesser of its last and its average slope, which is rather too little than too much,
    since the cost of a row does not fall with the size of a batch.

    Attributes:
        points: (rows, ms), ascending in rows and not descending in ms.
    """

    points: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        rows = [r for r, _ in self.points]
        times = [ms for _, ms in self.points]
        if not rows or rows != sorted(set(rows)) or times != sorted(times) or rows[0] < 0:
            raise ConfigError(
                "a cost curve takes (rows, ms) pairs, ascending in rows and not descending in ms; "
                f"given are {[list(p) for p in self.points]}"
            )

    @classmethod
    def through(cls, best: Mapping[int, float]) -> CostCurve:
        """The curve through the best times measured, by rows.

        Disturbances only ever add time. So where a larger batch was faster than a smaller one, it
        is the smaller one's time that is too long, and it is lowered to the larger one's.
        """
        ordered = sorted(best.items())
        lowered = list(accumulate((ms for _, ms in reversed(ordered)), min))[::-1]
        return cls(tuple((rows, ms) for (rows, _), ms in zip(ordered, lowered, strict=True)))

    @property
    def last(self) -> int:
        """The largest size measured."""
        return self.points[-1][0]

    def at(self, rows: int) -> float:
        """Estimated ms of ``rows``."""
        i = bisect_right(self.points, (rows, inf))
        if i == 0:
            return self.points[0][1]
        x, y = self.points[i - 1]
        if i < len(self.points):
            x2, y2 = self.points[i]
            return y + (y2 - y) * (rows - x) / (x2 - x)
        return y + (rows - x) * self.slope_beyond

    @property
    def slope_beyond(self) -> float:
        """Ms that a row is taken to add beyond the last point."""
        (x, y), average = self.points[-1], self.points[-1][1] / max(self.points[-1][0], 1)
        if len(self.points) == 1:
            return average
        x1, y1 = self.points[-2]
        return min((y - y1) / (x - x1), average)


@dataclass(frozen=True, slots=True)
class BatchTimes:
    """Eager and replay times of one phase, and the seconds that measuring them took.

    Attributes:
        eager: None where nothing is known of it; then it counts as infinitely slow.
    """

    eager: CostCurve | None
    replay: CostCurve
    seconds: float = 0.0

    def eager_ms(self, live: int) -> float:
        """Estimated ms of ``live`` rows run eager."""
        return inf if self.eager is None else self._at(self.eager, live)

    def replay_ms(self, bucket: int) -> float:
        """Estimated ms of a replay of ``bucket`` rows.

        A replay makes the calls of an eager run of its size and no more, so a longer time measured
        of it is noise: it counts as eager's at that size.
        """
        return min(self._at(self.replay, bucket), self.eager_ms(bucket))

    def run(self, live: int, bucket: int | None) -> float:
        """Estimated ms of a batch: by the graph of ``bucket``, or eager where that is faster."""
        eager = self.eager_ms(live)
        return eager if bucket is None else min(self.replay_ms(bucket), eager)

    def _at(self, curve: CostCurve, rows: int) -> float:
        """Beyond what was measured of it, a row adds as much to one curve as to the other.

        Each with a slope of its own, they would drift apart by what is noise at the last points.
        """
        if self.eager is None or rows <= curve.last:
            return curve.at(rows)
        slope = min(self.eager.slope_beyond, self.replay.slope_beyond)
        return curve.at(curve.last) + (rows - curve.last) * slope

    def ideal(self, live: int) -> float:
        """Estimated ms of ``live`` rows if there were a graph of exactly that size."""
        return self.run(live, live)


class MeasuredCost:
    """Prefers eager where the measured times say that a replay would take longer.

    Until :meth:`settle` it prefers nothing. It is settled once, before the first batch or, where
    graphs are captured late, when nothing runs, so that equal batches run equally from then on.
    """

    def __init__(self, margin: float = MARGIN) -> None:
        self.margin = margin
        self._times: BatchTimes | None = None

    @property
    def times(self) -> BatchTimes | None:
        """What was measured; None before it."""
        return self._times

    def settle(self, times: BatchTimes) -> None:
        """Decide by ``times`` from now on.

        Raises:
            ConfigError: it was settled before; decisions must not change under running requests.
        """
        if self._times is not None:
            raise ConfigError("the costs of this runner are measured already")
        self._times = times

    def too_dear(self, live: int, bucket: int) -> str | None:
        """Why replaying ``bucket`` loses to running ``live`` rows eager, in ms; None if not.

        A batch longer than any measured one is not judged: both its times would be guesses. A full
        bucket is never too dear, see :meth:`BatchTimes.replay_ms`.
        """
        times = self._times
        if times is None or times.eager is None or live > times.eager.last:
            return None
        replay, eager = times.replay_ms(bucket), times.eager_ms(live)
        if replay <= eager * (1 + self.margin):
            return None
        return (
            f"the graph of {bucket} rows takes {replay:.2f} ms, these {live} rows run eager "
            f"{eager:.2f} ms (estimated from measurements at start)"
        )
