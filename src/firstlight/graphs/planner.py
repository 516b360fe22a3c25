"""Chooses the buckets that serve a distribution of lengths in the least expected time.

Without budgets the optimum is a shortest path: a list is a path from 0 over ascending sizes, the
edge from i to j costs the time of all batches with lengths in (i, j], and each of those takes the
graph of j or runs eager, whichever is faster. Dynamic programming over the number of edges finds
the best list of at most ``max_buckets`` sizes exactly. Sizes that no length equals (after rounding
to a multiple of ``align``) need not be tried: lowering such a bucket to the largest length that it
serves slows nothing down. Budgets of seconds and bytes make it a shortest path under resource
limits; see :mod:`firstlight.graphs.budgets`.
"""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.errors import ConfigError
from firstlight.graphs.bucket_path import Budget, CaptureCosts, Problem
from firstlight.graphs.budgets import within_budget
from firstlight.graphs.cost import BatchTimes
from firstlight.graphs.lengths import Lengths

__all__ = ["MAX_CANDIDATES", "Budget", "CaptureCosts", "Plan", "plan_buckets"]

MAX_CANDIDATES = 2048
"""Sizes that are tried at most; with more distinct lengths the sizes become coarser multiples."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A list and what is known of it.

    Attributes:
        buckets: ascending; empty if eager is fastest throughout.
        ms: expected ms of a batch.
        gap: by how much, relative to ``ms``, no list within the budget can be better than this
            one; 0 means that it is the optimum.
        align: all sizes are multiples of it.
    """

    buckets: tuple[int, ...]
    ms: float
    gap: float
    align: int


def plan_buckets(
    lengths: Lengths,
    times: BatchTimes,
    budget: Budget,
    capture: CaptureCosts | None = None,
    align: int = 1,
) -> Plan:
    """The list within ``budget`` that has the least expected time.

    Args:
        times: of eager runs and replays; without eager times every length gets a bucket.
        capture: needed if seconds or bytes are limited.
        align: sizes are multiples of it; raised, by doubling, until at most
            :data:`MAX_CANDIDATES` sizes are to be tried.

    Raises:
        ConfigError: a number is out of range, costs are missing, or no list fits the budget.
    """
    if budget.buckets < 1 or align < 1:
        raise ConfigError(f"a plan takes at least 1 bucket and sizes in multiples of at least 1; "
                          f"given are {budget.buckets} and {align}")  # fmt: skip
    while len({-(-n // align) for n in lengths.rows}) > MAX_CANDIDATES:
        align *= 2
    problem = Problem.of(lengths, times, align)
    if budget.seconds is None and budget.bytes is None:
        sizes, gap = problem.unlimited(budget.buckets), 0.0
    else:
        if capture is None:
            raise ConfigError("a budget of seconds or bytes needs to know what a capture takes")
        sizes, gap = within_budget(problem, budget, capture)
    buckets = tuple(int(problem.sizes[j]) for j in sizes)
    return Plan(buckets, problem.cost(sizes) / lengths.total, gap, align)
