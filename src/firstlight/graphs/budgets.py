"""Bucket lists under budgets of seconds and bytes: a shortest path with limited resources.

The method is that of Handler and Zang (Networks 10, 1980): prices on the resources turn the limits
into costs, whose best prices give a lower bound; then paths are searched best bound first until
none is left that could beat the best list found. What the bounds leave open when the search is cut
short is returned as the gap.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import count
from math import inf

import numpy as np

from firstlight.errors import ConfigError
from firstlight.graphs.bucket_path import Array, Budget, CaptureCosts, PathTable, Problem

_PRICINGS = 24
_CLOSE = 1e-4  # relative gap at which better prices are not worth their time
_MAX_LABELS = 50_000
_EQUAL = 1e-12  # relative; what rounding may make of equal costs
_Nodes = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Limits:
    """Use of the budgets, each as a share of its budget.

    Attributes:
        node: [R, K + 1] share that a bucket takes for itself.
        last: [R, K + 1] share that the largest bucket takes once for all.
    """

    node: Array
    last: Array

    @classmethod
    def of(cls, problem: Problem, budget: Budget, capture: CaptureCosts) -> _Limits:
        sizes = [int(size) for size in problem.sizes]
        node, last = [], []
        for limit, own, shared in (
            (budget.seconds, capture.seconds, None),
            (budget.bytes, capture.own_bytes, capture.shared_bytes),
        ):
            if limit is None:
                continue
            if limit <= 0:
                raise ConfigError(f"a budget must be positive; given is {limit:g}")
            node.append([0.0, *(own.at(size) / limit for size in sizes[1:])])
            shares = [0.0 if shared is None else shared.at(size) / limit for size in sizes[1:]]
            last.append([0.0, *shares])
        return cls(np.array(node), np.array(last))

    def used(self, nodes: _Nodes) -> Array:
        """The share of each budget that a list takes."""
        if not nodes:
            return np.zeros(len(self.node))
        return np.asarray(self.node[:, list(nodes)].sum(axis=1) + self.last[:, nodes[-1]])


@dataclass(slots=True)
class _Best:
    """The best list found so far."""

    problem: Problem
    limits: _Limits
    nodes: _Nodes | None = None
    cost: float = inf

    def offer(self, nodes: _Nodes) -> None:
        """Take a list if it fits and is better."""
        if np.all(self.limits.used(nodes) <= 1 + _EQUAL):
            cost = self.problem.cost(nodes)
            if cost < self.cost:
                self.nodes, self.cost = nodes, cost


@dataclass(slots=True)
class _Pricing:
    """Shortest paths under given prices, one per resource, in ms for a whole budget."""

    prices: Array
    table: PathTable
    bound: float
    nodes: _Nodes


def within_budget(problem: Problem, budget: Budget, capture: CaptureCosts) -> tuple[_Nodes, float]:
    """The nodes of the best list within ``budget``, and the relative gap to the best bound.

    Raises:
        ConfigError: no list fits.
    """
    limits = _Limits.of(problem, budget, capture)
    best = _Best(problem, limits)
    if problem.tail[0] < inf:
        best.offer(())
    best.offer((len(problem.sizes) - 1,))
    priced = _best_prices(problem, limits, budget.buckets, best)
    open_bound = priced.bound
    if best.cost - priced.bound > _EQUAL * abs(best.cost):
        open_bound = _search(problem, limits, budget.buckets, priced, best)
    if best.nodes is None:
        raise ConfigError(
            "no bucket list fits the budget: a single bucket of the longest length takes more"
        )
    return best.nodes, max(0.0, (best.cost - open_bound) / best.cost) if best.cost else 0.0


def _price(problem: Problem, limits: _Limits, buckets: int, prices: Array, best: _Best) -> _Pricing:
    """Solve without limits but with prices; every list met is offered."""
    table = PathTable.of(problem.edges + (prices @ limits.node)[None, :], buckets)
    totals = table.best + (problem.tail + prices @ limits.last)[None, :]
    for length, last in enumerate(np.argmin(totals, axis=1)):
        if totals[length, last] < inf:
            best.offer(table.path(length, int(last)))
    k, node = divmod(int(np.argmin(totals)), totals.shape[1])
    return _Pricing(prices, table, float(totals[k, node] - prices.sum()), table.path(k, node))


def _best_prices(problem: Problem, limits: _Limits, buckets: int, best: _Best) -> _Pricing:
    """Subgradient ascent with Polyak's step; keeps the prices with the highest bound."""
    prices = np.zeros(len(limits.node))
    top = _price(problem, limits, buckets, prices, best)
    current, reach = top, 1.0
    for _ in range(_PRICINGS):
        excess = limits.used(current.nodes) - 1
        excess[(excess < 0) & (current.prices <= 0)] = 0.0
        norm = float(excess @ excess)
        target = best.cost if best.cost < inf else 1.1 * abs(current.bound) + 1.0
        if norm == 0 or target - top.bound <= _CLOSE * abs(target):
            break
        step = reach * max(target - current.bound, 0.0) / norm
        current = _price(
            problem, limits, buckets, np.maximum(current.prices + step * excess, 0.0), best
        )
        if current.bound > top.bound:
            top = current
        else:
            reach *= 0.7
    return top


def _search(
    problem: Problem, limits: _Limits, buckets: int, priced: _Pricing, best: _Best
) -> float:
    """Extend lists downwards from their largest bucket, best bound first.

    Returns:
        what no list can cost less than: the cost of the best where the search came to its end.
    """
    prices = priced.prices
    # Cheapest way down to node 0 from a node, with at most so many buckets, that node included.
    below = np.minimum.accumulate(priced.table.best, axis=0)
    room = below.shape[0] - 1
    order = count()
    queue: list[tuple[float, int, int, int, float, Array, _Nodes]] = []

    def push(bounds: Array, left: int, costs: Array, used: Array, above: _Nodes) -> None:
        """Queue the nodes [K + 1] with these bounds, unless they cannot win or do not fit."""
        fits = np.all(used <= 1 + _EQUAL, axis=0) & (bounds < best.cost * (1 - _EQUAL))
        for node in np.flatnonzero(fits):
            if node == 0:
                best.offer(above)
            else:
                item = (float(bounds[node]), next(order), left, int(node), float(costs[node]))
                heapq.heappush(queue, (*item, used[:, node], above))

    bounds = problem.tail + prices @ limits.last + below[room] - prices.sum()
    push(bounds, room, problem.tail, limits.last, ())
    while queue and queue[0][0] < best.cost * (1 - _EQUAL):
        if next(order) > _MAX_LABELS:
            return queue[0][0]
        _, _, left, node, cost, used, above = heapq.heappop(queue)
        costs = cost + problem.edges[:, node]
        taken = np.repeat((used + limits.node[:, node])[:, None], len(costs), axis=1)
        bounds = costs + prices @ taken + below[left - 1] - prices.sum()
        push(bounds, left - 1, costs, taken, (node, *above))
    return best.cost
