"""A clock for measurements on a machine that does other work too."""

from __future__ import annotations

import os
import time
from types import TracebackType

_SCHEDSTAT = "/proc/thread-self/schedstat"


class OwnTime:
    """Seconds, less those in which this thread was ready to run and had to wait for a core.

    Linux counts that time in the second field of ``schedstat`` (Documentation/scheduler/
    sched-stats.rst). Where it is not counted, the clock is the plain monotonic one. It is good in
    the thread that made it; other threads of an operation, and time that a hypervisor takes, are
    not seen.
    """

    def __init__(self) -> None:
        try:
            self._file: int | None = os.open(_SCHEDSTAT, os.O_RDONLY)
        except OSError:
            self._file = None
        if self._file is not None and len(os.pread(self._file, 100, 0).split()) < 2:
            self.close()

    def __call__(self) -> float:
        """Now; only differences mean anything."""
        before = self._waited()
        while True:
            now, waited = time.perf_counter(), self._waited()
            if waited == before:
                return now - waited
            before = waited  # it waited between the two readings, which then do not go together

    def __enter__(self) -> OwnTime:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Go on as the plain clock and give the file back."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _waited(self) -> float:
        if self._file is None:
            return 0.0
        return int(os.pread(self._file, 100, 0).split()[1]) * 1e-9
