"""Which requests run next, and how far: pure Python, without torch."""

from __future__ import annotations

from firstlight.engine.scheduling.limits import Limits, check_start
from firstlight.engine.scheduling.paged_memory import PagedMemory
from firstlight.engine.scheduling.request import EncoderCosts, MediaNeed, Schedulable
from firstlight.engine.scheduling.scheduler import Scheduler
from firstlight.engine.scheduling.stats import SchedulerStats

__all__ = [
    "EncoderCosts",
    "Limits",
    "MediaNeed",
    "PagedMemory",
    "Schedulable",
    "Scheduler",
    "SchedulerStats",
    "check_start",
]
