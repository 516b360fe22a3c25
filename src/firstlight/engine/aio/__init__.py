"""The engine for many callers at once: an asyncio front, and one thread that steps."""

from firstlight.engine.aio.engine import AsyncEngine
from firstlight.engine.aio.intake import Intake
from firstlight.engine.aio.job import Delta, Job, Waits
from firstlight.engine.aio.limits import ServingLimits
from firstlight.engine.aio.step_loop import LoopState, StepLoop
from firstlight.engine.aio.stream import Stream

__all__ = [
    "AsyncEngine",
    "Delta",
    "Intake",
    "Job",
    "LoopState",
    "ServingLimits",
    "StepLoop",
    "Stream",
    "Waits",
]
