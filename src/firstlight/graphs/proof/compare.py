"""Where two tensors differ first, and by how much."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows are indices of the first dimension.

    Attributes:
        size: the largest absolute difference; infinite where only one side is a number.
        first: the first row that differs.
        rows: how many rows differ, of ``total``.
    """

    size: float
    first: int
    rows: int
    total: int


def difference(found: Tensor, expected: Tensor, tolerance: float = 0.0) -> Difference | None:
    """How ``found`` differs by more than ``tolerance``; None if it does not. NaN equals NaN."""
    if found.shape[0] == 0 or torch.equal(found, expected):
        return None
    if tolerance and float((found - expected).abs().max()) <= tolerance * 0.98:
        return None  # the common case, without doubles; 0.98 leaves room for its rounding
    a, b = found.double().flatten(1), expected.double().flatten(1)
    gap = (a - b).abs()
    gap[(a == b) | (a.isnan() & b.isnan())] = 0  # equal infinities are no difference
    gap = gap.nan_to_num(nan=float("inf"))
    wrong = (gap > tolerance).any(1)
    if not bool(wrong.any()):
        return None
    return Difference(
        size=float(gap.max()),
        first=int(wrong.int().argmax()),
        rows=int(wrong.sum()),
        total=found.shape[0],
    )


def largest(found: Tensor, expected: Tensor) -> float:
    """The largest absolute difference."""
    gap = difference(found, expected)
    return 0.0 if gap is None else gap.size


def scale_of(values: Tensor) -> float:
    """The largest finite absolute value; 0 for nothing."""
    if not values.numel():
        return 0.0
    largest_value = float(values.abs().max())
    if math.isfinite(largest_value):
        return largest_value
    return float(values.nan_to_num(0.0, 0.0, 0.0).abs().max())


def relative_gap(found: Tensor, expected: Tensor) -> float:
    """The largest difference in units of the largest finite expected value."""
    gap = largest(found, expected)
    return gap / (scale_of(expected) or 1.0)
