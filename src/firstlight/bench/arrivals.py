"""When the requests of an open load come."""

from __future__ import annotations

import random
from itertools import accumulate


def arrivals(rate: float, n: int, seed: int) -> list[float]:
    """Seconds from the start at which ``n`` requests come, the first at once.

    The distances are exponential with mean ``1 / rate`` (a Poisson process).
    """
    chance = random.Random(f"arrivals {seed}")
    return list(accumulate((chance.expovariate(rate) for _ in range(n - 1)), initial=0.0))
