"""Values that no healthy computation reads: NaN for floats, ids beyond every table for integers.

One 16-bit word, repeated, is both. Seen as bfloat16, float16, float32 or float64 it is a NaN; seen
as int32 or int64 it is larger than any row count, and so are its small multiples, so that an index
operation raises before it touches memory. As a pattern of bits it is told from a computed NaN.
"""

from __future__ import annotations

from enum import Enum

import torch
from torch import Tensor

WORD = 0x7FFF
_LARGE = 3e4  # finite in float16


class Poison(Enum):
    """How harsh the poison for floats is.

    ``NAN`` finds every read, also one whose result is multiplied by zero afterwards. ``FINITE`` is
    for bodies that mask by such a product, e.g. dense attention over a whole pool: a large number
    finds reads that reach the result, and lets masked ones pass.
    """

    NAN = "nan"
    FINITE = "finite"


_INTS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def pattern(dtype: torch.dtype) -> int:
    """The poison of ``dtype`` as an integer of its size."""
    size = dtype.itemsize
    if size == 1:
        return WORD >> 8
    return sum(WORD << (16 * i) for i in range(size // 2))


def bits(tensor: Tensor) -> Tensor:
    """The same memory as integers."""
    if tensor.dtype.is_complex:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_INTS[tensor.dtype.itemsize])


def poison_(tensor: Tensor, poison: Poison = Poison.NAN) -> None:
    """Fill ``tensor``, a view or not, with poison; booleans are left alone."""
    if tensor.dtype is torch.bool:
        return
    if tensor.dtype.is_floating_point and poison is Poison.FINITE:
        tensor.fill_(_LARGE)
    else:
        bits(tensor).fill_(pattern(tensor.dtype))


LEGAL_INDEX = 1
"""What stands for poison in integers where a bad index would end the process and not raise, i.e. on
a GPU: a row, page or token slot that exists and is not the neutral one."""


def misplace_(tensor: Tensor, poison: Poison) -> None:
    """As :func:`poison_`, but integers become legal indices that nobody wrote."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        poison_(tensor, poison)
    elif tensor.dtype is not torch.bool:
        tensor.fill_(LEGAL_INDEX)


def is_poison(tensor: Tensor) -> Tensor:
    """Boolean mask of the elements that still hold poison bit for bit (never for booleans)."""
    if tensor.dtype is torch.bool:
        return torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    return bits(tensor).eq(pattern(tensor.dtype))


def far_apart(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    """Boolean mask of the elements that differ; NaN beside NaN does not.

    Args:
        tolerance: in units of the largest finite value of ``b``; 0 compares bits.
    """
    differs = bits(a).ne(bits(b))
    if not tolerance or not a.dtype.is_floating_point or not bool(differs.any()):
        return differs
    room = tolerance * float(b.nan_to_num(0.0, 0.0, 0.0).abs().max())
    near = (a.double() - b.double()).abs() <= room
    return differs & ~near & ~(a.isnan() & b.isnan())


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit for bit, NaN included."""
    return torch.equal(bits(a), bits(b))


def words(storage: torch.UntypedStorage, start: int, end: int) -> Tensor:
    """Bytes ``[start, end)`` of a storage as 16-bit words, int16."""
    view = torch.empty(0, dtype=torch.int16, device=storage.device)
    return view.set_(storage, start // 2, (max(end - start, 0) // 2,), (1,))
