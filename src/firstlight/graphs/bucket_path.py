"""A bucket list as a path over ascending sizes, and the shortest such path."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from firstlight.graphs.cost import BatchTimes, CostCurve
from firstlight.graphs.lengths import Lengths

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CaptureCosts:
    """What capturing a bucket takes, by its rows.

    Attributes:
        seconds: of one capture.
        own_bytes: that one bucket keeps for itself.
        shared_bytes: that all buckets share, taken once, by the rows of the largest.
    """

    seconds: CostCurve
    own_bytes: CostCurve
    shared_bytes: CostCurve


@dataclass(frozen=True, slots=True)
class Budget:
    """What a list may take: ``buckets`` sizes at most, and seconds and bytes of all captures."""

    buckets: int
    seconds: float | None = None
    bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """The graph of the shortest path; node 0 stands below all lengths, node j at ``sizes[j]``.

    Attributes:
        sizes: [K + 1] rows by node, 0 first.
        edges: [K + 1, K + 1] ms of the batches between two nodes, inf unless i < j.
        tail: [K + 1] ms of the batches beyond a node, which run eager.
    """

    sizes: NDArray[np.int64]
    edges: Array
    tail: Array

    @classmethod
    def of(cls, lengths: Lengths, times: BatchTimes, align: int) -> Problem:
        """Edges from prefix sums: as eager times ascend, those that beat t(j) come first."""
        rows, weights = np.array(lengths.rows), np.array(lengths.weights)
        sizes = np.concatenate(([0], np.unique(-(-rows // align) * align)))
        replay = np.array([times.replay_ms(int(size)) for size in sizes])
        known = times.eager is not None
        eager = np.array([times.eager_ms(int(n)) if known else 0.0 for n in rows])
        upto = np.searchsorted(rows, sizes, side="right")
        faster = np.searchsorted(eager, replay) if known else np.zeros(len(sizes), dtype=int)
        mass = np.concatenate(([0.0], np.cumsum(weights)))
        spent = np.concatenate(([0.0], np.cumsum(weights * eager)))
        start, end = upto[:, None], upto[None, :]
        split = np.clip(faster[None, :], start, np.maximum(start, end))
        edges = spent[split] - spent[start] + replay[None, :] * (mass[end] - mass[split])
        nodes = np.arange(len(sizes))
        edges[nodes[:, None] >= nodes[None, :]] = inf
        tail = spent[-1] - spent[upto]
        if not known:
            tail[:-1] = inf
        return cls(sizes, edges, tail)

    def cost(self, nodes: tuple[int, ...]) -> float:
        """Total ms of the list that visits ``nodes``."""
        path = (0, *nodes)
        edges = sum(self.edges[i, j] for i, j in zip(path, nodes, strict=False))
        return float(edges + self.tail[path[-1]])

    def unlimited(self, count: int) -> tuple[int, ...]:
        """The nodes of the best list of at most ``count``; the shortest of equally good ones."""
        table = PathTable.of(self.edges, count)
        totals = table.best + self.tail[None, :]
        by_length = totals.min(axis=1)
        # A longer list must be better by more than rounding.
        length = int(np.argmax(by_length <= by_length.min() * (1 + 1e-12)))
        return table.path(length, int(np.argmin(totals[length])))


@dataclass(frozen=True, slots=True)
class PathTable:
    """Shortest paths from node 0 by number of edges.

    Attributes:
        best: [count + 1, K + 1] cost of the best path to a node with exactly so many edges.
        before: the node before it on that path.
    """

    best: Array
    before: NDArray[np.int64]

    @classmethod
    def of(cls, edges: Array, count: int) -> PathTable:
        """Paths of 0 to ``count`` edges."""
        nodes = edges.shape[0]
        count = min(count, nodes - 1)
        best = np.full((count + 1, nodes), inf)
        before = np.zeros((count + 1, nodes), dtype=np.int64)
        best[0, 0] = 0.0
        into = np.ascontiguousarray(edges.T)  # a row per target: the minimum runs over memory
        totals, targets = np.empty_like(into), np.arange(nodes)
        for k in range(1, count + 1):
            np.add(into, best[k - 1][None, :], out=totals)
            before[k] = np.argmin(totals, axis=1)
            best[k] = totals[targets, before[k]]
        return cls(best, before)

    def path(self, length: int, last: int) -> tuple[int, ...]:
        """Nodes of the best path of ``length`` edges to ``last``, ascending, without node 0."""
        nodes: list[int] = []
        for k in range(length, 0, -1):
            nodes.append(last)
            last = int(self.before[k, last])
        return tuple(reversed(nodes))
