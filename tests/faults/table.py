"""All faults, in the order in which the documentation lists them."""

from __future__ import annotations

from tests.faults import bodies, replays, slots

FAULTS = (*bodies.FAULTS, *slots.FAULTS, *replays.FAULTS)
UNCAUGHT = (*bodies.UNCAUGHT, *replays.UNCAUGHT)
