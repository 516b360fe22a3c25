"""One thread at a time, and each turn whole: what an exception cuts short is begun anew."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Generic, TypeVar

from firstlight.errors import BusyError

T = TypeVar("T")


class Turns(Generic[T]):
    """Guards what only one may touch at a time and nobody may leave half done.

    Args:
        leave: lets one leaver go; called within a turn.
        begin_anew: makes everything consistent again, whatever state it was left in.
    """

    def __init__(self, leave: Callable[[T], None], begin_anew: Callable[[], None]) -> None:
        self._leave = leave
        self._begin_anew = begin_anew
        self._lock = Lock()
        self._torn = False
        self._leavers: deque[T] = deque()

    @contextmanager
    def take(self) -> Iterator[None]:
        """Have the turn; an exception that ends it makes everything begin anew.

        Raises:
            BusyError: somebody has it. Slots and pages are one set: two steps at once would mix two
                batches in silence.
        """
        if not self._lock.acquire(blocking=False):
            raise BusyError(
                "another thread is using this LLM; make one call at a time, or one LLM per thread"
            )
        try:
            with self._whole():
                yield
        finally:
            self._lock.release()
            self._let_go()

    def leave(self, leavers: Iterable[T]) -> None:
        """Let these go: now, or at the end of the turn that somebody has.

        That need not be another thread: the garbage collector closes iterators at any moment.
        """
        self._leavers.extend(leavers)
        self._let_go()

    def _let_go(self) -> None:
        # Whoever fails to get the lock has added its leavers before, so that the holder, who looks
        # once more after the release, finds them.
        while self._leavers and self._lock.acquire(blocking=False):
            try:
                with self._whole():
                    while self._leavers:
                        self._leave(self._leavers[0])
                        self._leavers.popleft()
            finally:
                self._lock.release()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        if self._torn:  # beginning anew was itself cut short
            self._mend()
        self._torn = True
        try:
            yield
        except BaseException:
            self._mend()
            raise
        self._torn = False

    def _mend(self) -> None:
        self._begin_anew()
        self._torn = False
