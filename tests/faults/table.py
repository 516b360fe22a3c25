"""All faults, in the order in which the documentation lists them."""

from __future__ import annotations

from tests.faults import adapters, bodies, replays, sides, slots

FAULTS = (*adapters.FAULTS, *bodies.FAULTS, *slots.FAULTS, *sides.FAULTS, *replays.FAULTS)
UNCAUGHT = (*adapters.UNCAUGHT, *bodies.UNCAUGHT)
