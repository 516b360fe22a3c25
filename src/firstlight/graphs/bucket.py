"""Which sizes graphs are captured for, and what became of each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from enum import Enum

from firstlight.errors import ConfigError


def default_ladder(cap: int) -> tuple[int, ...]:
    """Token buckets up to and including ``cap``.

    Steps of 16 to 128, of 32 to 256, of 64 to 512, of 128 to 1,024, then about an eighth more each
    time, in multiples of 64. Every bucket is captured and proven at each start, at the price of a
    few prefills of its length, so there are no more of them than pay: where padding would take
    longer than what a graph saves, a batch runs eager.
    """
    _check_cap(cap)
    ladder = [*range(16, 129, 16), *range(160, 257, 32), *range(320, 513, 64)]
    ladder += range(640, 1025, 128)
    while ladder[-1] < cap:
        ladder.append(max(int(ladder[-1] * 1.125) // 64 * 64, ladder[-1] + 64))
    return (*(t for t in ladder if t < cap), cap)


def request_ladder(cap: int) -> tuple[int, ...]:
    """Request buckets 1, 2, 4, 8, ... up to and including ``cap``."""
    _check_cap(cap)
    return (*(1 << i for i in range(cap.bit_length()) if 1 << i < cap), cap)


def parse_ladder(text: str) -> tuple[int, ...]:
    """``"16,32,64"`` as buckets: positive, in any order, doubles removed.

    Raises:
        ConfigError: an entry is no positive integer.
    """
    sizes: set[int] = set()
    for part in text.split(","):
        if not part.strip().isdecimal() or int(part) == 0:
            raise ConfigError(f"the bucket {part.strip()!r} in {text!r} is no positive integer")
        sizes.add(int(part))
    return tuple(sorted(sizes))


def _check_cap(cap: int) -> None:
    if cap < 1:
        raise ConfigError(f"the largest bucket is {cap}; it must be at least 1")


class BucketState(Enum):
    """Where a bucket stands."""

    WAITING = "waiting"  # not captured yet
    UNPROVEN = "unproven"  # captured, and not proven yet
    READY = "ready"
    FAILED = "failed"  # its capture raised
    QUARANTINED = "quarantined"  # captured, but its replay was found wrong


class BucketTable:
    """The buckets of one phase with their states and, where one failed, why."""

    def __init__(self, sizes: Iterable[int]) -> None:
        self.sizes: Sequence[int] = tuple(sorted(set(sizes)))
        if any(size < 1 for size in self.sizes):
            raise ConfigError(f"buckets must be positive; given are {list(self.sizes)}")
        self._states: dict[int, tuple[BucketState, str]] = {
            size: (BucketState.WAITING, "") for size in self.sizes
        }

    @property
    def largest(self) -> int:
        """The largest bucket, 0 if there is none."""
        return self.sizes[-1] if self.sizes else 0

    def fitting(self, n: int) -> int | None:
        """The smallest bucket of at least ``n`` rows."""
        i = bisect_left(self.sizes, n)
        return self.sizes[i] if i < len(self.sizes) else None

    def state(self, bucket: int) -> BucketState:
        """The state of a bucket; KeyError if there is no such bucket."""
        return self._states[bucket][0]

    def why(self, bucket: int) -> str:
        """The message that came with the state."""
        return self._states[bucket][1]

    def mark(self, bucket: int, state: BucketState, why: str = "") -> None:
        """Set the state of a bucket; KeyError if there is no such bucket."""
        if bucket not in self._states:
            raise KeyError(bucket)
        self._states[bucket] = (state, why)
