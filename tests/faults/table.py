"""All faults, in the order in which the documentation lists them."""

from __future__ import annotations

from tests.faults import adapters, bodies, replays, slots

FAULTS = (*adapters.FAULTS, *bodies.FAULTS, *slots.FAULTS, *replays.FAULTS)
UNCAUGHT = (*adapters.UNCAUGHT, *bodies.UNCAUGHT)
