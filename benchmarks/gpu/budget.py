"""What runs within a time limit, in order of importance, and what was left out."""

from __future__ import annotations

import signal
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any


class OutOfTimeError(Exception):
    """The time for everything is over; what was measured so far is reported."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the check.

    Attributes:
        needs: seconds without which it is not begun.
        run: returns what goes into the report; an entry ``ok`` that is false means it failed,
            and a true ``dropped`` that it could not be run here.
    """

    name: str
    needs: float
    run: Callable[[], dict[str, Any]]


@dataclass(slots=True)
class Budget:
    """Seconds that all parts have together.

    Attributes:
        results: by part, what it gave, with its ``seconds`` and its ``status``: ``ok``, ``failed``,
            ``dropped`` or ``cut short``.
    """

    limit: float
    clock: Callable[[], float] = time.monotonic
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    began: float = 0.0

    def __post_init__(self) -> None:
        self.began = self.clock()

    @property
    def left(self) -> float:
        """Seconds until the limit."""
        return self.limit - (self.clock() - self.began)

    def enough(self, seconds: float) -> bool:
        """Whether a measurement of about so many seconds still fits."""
        return self.left > seconds

    def run(self, parts: list[Part]) -> bool:
        """Run what fits, in order. Returns whether nothing failed; what is dropped fails nothing.

        An exception of one part is its result, and the next one is run.
        """
        with self._alarm():
            for part in parts:
                self.results[part.name] = self._one(part)
        return all(result["status"] in ("ok", "dropped") for result in self.results.values())

    def _one(self, part: Part) -> dict[str, Any]:
        if self.left < part.needs:
            why = f"{self.left:.0f} s were left, and it is not begun with less than {part.needs:g}"
            return {"status": "dropped", "why": why, "seconds": 0.0}
        began = self.clock()
        try:
            found = part.run()
            status = "ok" if found.get("ok", True) else "failed"
            status = "dropped" if found.pop("dropped", False) else status
        except OutOfTimeError:
            found, status = {"why": "the time was over"}, "cut short"
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            found, status = {"why": why, "traceback": traceback.format_exc()}, "failed"
        return found | {"status": status, "seconds": round(self.clock() - began, 2)}

    @contextmanager
    def _alarm(self) -> Iterator[None]:
        """Ends whatever runs when the time is over, for parts that misjudge themselves."""

        def over(signum: int, frame: FrameType | None) -> None:
            raise OutOfTimeError

        before = signal.signal(signal.SIGALRM, over)
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 0.001))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
