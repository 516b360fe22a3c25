"""How long batches are: a weight for each number of rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log

from firstlight.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of batch lengths.

    Attributes:
        rows: distinct lengths, ascending, each at least 1.
        weights: how often each occurs, positive; on any scale.
        label: what it is, for people.
    """

    rows: tuple[int, ...]
    weights: tuple[float, ...]
    label: str = ""

    def __post_init__(self) -> None:
        if not self.rows or len(self.rows) != len(self.weights):
            raise ConfigError("a distribution of lengths takes one weight for each of its lengths")
        if list(self.rows) != sorted(set(self.rows)) or self.rows[0] < 1:
            raise ConfigError("the lengths of a distribution are distinct and ascend from 1")
        if min(self.weights) <= 0:
            raise ConfigError("the weights of a distribution are positive")

    @classmethod
    def counted(cls, lengths: Iterable[int], label: str = "") -> Lengths:
        """The histogram of observed lengths."""
        counts: dict[int, float] = {}
        for n in lengths:
            counts[n] = counts.get(n, 0) + 1
        return cls.weighted(counts, label)

    @classmethod
    def weighted(cls, weights: Mapping[int, float], label: str = "") -> Lengths:
        """The distribution with these weights by length."""
        rows = sorted(weights)
        return cls(tuple(rows), tuple(float(weights[n]) for n in rows), label)

    @classmethod
    def log_uniform(cls, low: int, high: int) -> Lengths:
        """Each doubling of the length is equally likely, from ``low`` to ``high`` inclusive.

        The weight of n is the share of ln x between n - 1/2 and n + 1/2.
        """
        rows = tuple(range(low, high + 1))
        weights = tuple(log((n + 0.5) / (n - 0.5)) for n in rows)
        return cls(rows, weights, f"log-uniform from {low} to {high}")

    @property
    def total(self) -> float:
        """The sum of the weights."""
        return sum(self.weights)

    def in_steps(self, limit: int) -> Lengths:
        """The steps that prompts of these lengths are prefilled in, ``limit`` rows at most each.

        A longer prompt becomes full steps of ``limit`` rows and a rest. The weights then count
        steps and no longer prompts.
        """
        steps: dict[int, float] = {}
        for n, weight in zip(self.rows, self.weights, strict=True):
            full, rest = divmod(n, limit)
            if full:
                steps[limit] = steps.get(limit, 0.0) + full * weight
            if rest:
                steps[rest] = steps.get(rest, 0.0) + weight
        return Lengths.weighted(steps, f"{self.label}, in steps of at most {limit}")
