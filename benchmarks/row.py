"""One line of a report."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from benchmarks.interleave import Sample, ratio


@dataclass(frozen=True, slots=True)
class Row:
    """A figure, beside what it is compared with and what it should reach at most.

    Attributes:
        ours, theirs: medians in ms; ``theirs`` is None for a figure that stands alone.
        ratio: median of the rounds' ratios.
        limit: what the ratio (or, alone, the figure in ms) should not exceed; None is for
            information.
        spread: largest over smallest round of ours.
        unit: of both, where it is not ms.
    """

    name: str
    ours: float
    theirs: float | None = None
    ratio: float | None = None
    limit: float | None = None
    spread: float | None = None
    note: str = ""
    unit: str = "ms"

    @property
    def reached(self) -> bool | None:
        """Whether the limit is kept; None without one."""
        measured = self.ours if self.theirs is None else self.ratio
        return None if self.limit is None or measured is None else measured <= self.limit

    def as_dict(self) -> dict[str, object]:
        """JSON form."""
        return {**asdict(self), "reached": self.reached}


def compare(
    name: str, samples: dict[str, Sample], *, limit: float | None = None, note: str = ""
) -> Row:
    """A row from the samples ``ours`` and ``theirs``."""
    ours, theirs = samples["ours"], samples["theirs"]
    return Row(
        name=name,
        ours=round(ours.median * 1e3, 4),
        theirs=round(theirs.median * 1e3, 4),
        ratio=round(ratio(ours, theirs), 3),
        limit=limit,
        spread=round(max(ours.seconds) / ours.best, 2),
        note=note,
    )
