"""``firstlight`` with a fault that can be set off: ``python -m tools.load.faulty serve ...``.

After SIGUSR1 the next step of the engine raises when half of it is done: computed, and not yet
accounted for.
"""

from __future__ import annotations

import signal
import threading
from typing import Any

from firstlight.cli.main import main
from firstlight.engine.scheduling import Scheduler


def arm() -> None:
    """Make every engine of this process faulty on demand."""
    armed = threading.Event()
    commit = Scheduler.commit

    def faulty(self: Scheduler[Any], plan: Any) -> None:
        if armed.is_set():
            armed.clear()
            raise ZeroDivisionError("set off by a signal")
        commit(self, plan)

    Scheduler.commit = faulty  # type: ignore[method-assign]
    signal.signal(signal.SIGUSR1, lambda number, frame: armed.set())


if __name__ == "__main__":
    arm()
    raise SystemExit(main())
