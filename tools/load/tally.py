"""What became of all requests of a load test."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Trouble:
    """A request that was not answered as it should be.

    Attributes:
        kind: ``wrong``, ``hung``, ``cut`` (a stream that ended as if it were whole), ``broken``
            (the connection ended, as a client notices), ``told`` (an error), ``not refused``.
        code: of the error, where it was told one.
        began, ended: seconds of a monotonic clock.
    """

    kind: str
    what: str
    detail: str
    began: float
    ended: float
    code: str | None = None

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}: {self.detail}"[:600]


@dataclass(slots=True)
class Tally:
    """Counts of what went well, and everything that did not.

    Attributes:
        seconds: of each complete answer, from its request to its end.
        in_flight: requests that are under way.
        first: of each kind of request, how many were answered.
    """

    fine: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    troubles: list[Trouble] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    in_flight: int = 0

    @property
    def answers(self) -> int:
        """Complete answers, each of which was compared."""
        return self.fine["whole"] + self.fine["streamed"] + self.fine["read slowly"]

    def percentile(self, share: float) -> float:
        """Seconds within which this share of the answers was complete; 0 without any."""
        found = sorted(self.seconds)
        return found[min(int(share * len(found)), len(found) - 1)] if found else 0.0
