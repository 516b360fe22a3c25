"""What the Python side of a graph takes: calls, steps, tensor objects; not what tensors hold."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable
from functools import partial
from types import CellType, FunctionType

import torch

TENSOR_BYTES = 300
"""Of one tensor object with its C++ part, without its memory: measured over 100,000 of them."""

_HOLDERS = (tuple, list, dict, partial, CellType)


def host_bytes(roots: Iterable[object], seen: set[int]) -> int:
    """Bytes of the objects below ``roots`` that are not in ``seen``, which then has them.

    Only containers, closures and the records of this package are looked into: what they lead to
    beyond, such as modules and kernels, was there before the capture.
    """
    total = 0
    stack = list(roots)
    while stack:
        item = stack.pop()
        if id(item) in seen or isinstance(item, type | torch.UntypedStorage):
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            total += TENSOR_BYTES
            continue
        total += sys.getsizeof(item)
        if isinstance(item, FunctionType):
            stack += item.__closure__ or ()
        elif isinstance(item, _HOLDERS) or type(item).__module__.startswith(__package__ or "."):
            stack += gc.get_referents(item)
    return total
