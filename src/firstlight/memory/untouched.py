"""Zeros that take no memory before they are written: what a large pool does not use stays free.

``torch.zeros`` writes its zeros, so that all of a tensor is resident from the start. Pages fresh
from the system are zeros already, and it hands each one out at the first write to it; a page that
was only read costs nothing either, as all of these share one (mmap(2), ``MAP_ANONYMOUS``).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from firstlight.fresh_memory import fresh_pages


def untouched_zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """A contiguous tensor of zeros; on a CPU none of its memory is resident yet.

    The first write to a page of the system waits until it is handed out and cleared.

    Raises:
        MemoryError: the system refuses this much address space: a limit of the process, or of a
            machine that promises no more than it has.
    """
    n_bytes = prod(shape) * dtype.itemsize
    if device.type != "cpu" or n_bytes == 0:
        return torch.zeros(*shape, dtype=dtype, device=device)
    try:
        memory = fresh_pages(n_bytes)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"the system refuses {n_bytes} bytes: {error}") from error
    # The tensor refers to the mapping, which goes with the last view of it.
    return torch.frombuffer(memory, dtype=dtype, count=prod(shape)).view(*shape)
