"""What is in the house: a bounded number of requests, and a bounded number of their bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from firstlight.errors import OverloadedError

_FIRST_GUESS_S = 1.0
_WEIGHT = 0.1
_LONGEST_S = 60.0


class Intake:
    """Lets requests in while there is room. For one thread, the event loop's.

    Args:
        max_requests: requests in the house, those that run included.
        max_bytes: bytes that all of them may hold.
        parallel: requests that run at the same time, to guess how long the queue takes.
    """

    def __init__(self, max_requests: int, max_bytes: int, parallel: int) -> None:
        self.max_requests = max_requests
        self.max_bytes = max_bytes
        self.requests = 0
        self.bytes = 0
        self._parallel = parallel
        self._seconds = _FIRST_GUESS_S

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Be one of the requests in the house.

        Raises:
            OverloadedError: there are as many as may be.
        """
        if self.requests >= self.max_requests:
            raise self._refusal(f"{self.requests} requests are in the queue, which holds no more")
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def hold(self, n_bytes: int) -> None:
        """Count bytes that a request brings; :meth:`let_go` of them when it leaves.

        Raises:
            OverloadedError: all together would be more than may be; nothing was counted.
        """
        if self.bytes + n_bytes > self.max_bytes:
            raise self._refusal(
                f"the requests in the queue hold {self.bytes} bytes; with {n_bytes} more they "
                f"would hold more than {self.max_bytes}"
            )
        self.bytes += n_bytes

    def let_go(self, n_bytes: int) -> None:
        """Take back :meth:`hold`."""
        self.bytes -= n_bytes

    def finished(self, seconds: float) -> None:
        """A request was answered in this time; the guess about the queue learns from it."""
        self._seconds += _WEIGHT * (seconds - self._seconds)

    def _refusal(self, message: str) -> OverloadedError:
        wait = self.requests * self._seconds / self._parallel
        return OverloadedError(message, retry_after=min(max(wait, 1.0), _LONGEST_S))
