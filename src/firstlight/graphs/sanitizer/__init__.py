"""Finds reads of what nobody wrote, and writes where nobody should, without a GPU.

Give a :class:`SanitizingRunner` in the place of a :class:`~firstlight.graphs.GraphRunner`, run
batches, and look at its :class:`Report`. A plain runner holds nothing of this: switched off, the
sanitizer is not there.
"""

from __future__ import annotations

from firstlight.graphs.sanitizer.finding import Finding, FindingKind, Report
from firstlight.graphs.sanitizer.guard import GuardedArena, GuardedScratchArena
from firstlight.graphs.sanitizer.memory import (
    Footprint,
    PagedMemory,
    footprint_of_pages,
    token_slots,
)
from firstlight.graphs.sanitizer.poison import Poison
from firstlight.graphs.sanitizer.runner import SanitizingRunner
from firstlight.graphs.sanitizer.tracker import TrackedRegistry

__all__ = [
    "Finding",
    "FindingKind",
    "Footprint",
    "GuardedArena",
    "GuardedScratchArena",
    "PagedMemory",
    "Poison",
    "Report",
    "SanitizingRunner",
    "TrackedRegistry",
    "footprint_of_pages",
    "token_slots",
]
