"""How much an engine that serves many takes in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServingLimits:
    """Bounds of what waits, and of how long.

    Attributes:
        max_waiting: requests in the house beside those that run.
        max_bytes: bytes of the bodies of all requests in the house.
        threads: requests whose prompts and pictures are prepared at the same time.
        ahead: requests that may be prepared beside those that run. All others wait as they came:
            what a picture takes decoded is bounded by this, and not by how many wait.
        deadline_s: seconds that a request may take from its arrival to its end.
    """

    max_waiting: int = 256
    max_bytes: int = 512 << 20
    threads: int = 2
    ahead: int = 4
    deadline_s: float = 600.0
