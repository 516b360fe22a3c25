"""``firstlight::attention``: one operation, so that a graph holds attention like any other call.

It stores the rows' keys and values and attends over each request's pages. Everything that changes
from step to step comes from slots; nothing is baked into a capture.
"""

from __future__ import annotations

from typing import Any

import torch

from firstlight.attention.cpu import attention_
from firstlight.attention.cuda import attention_cuda_

# Registering an operation with torch happens once a process, at import: torch's registry is global
# and refuses a second definition of the same name.
_LIBRARY: Any = torch.library.Library("firstlight", "DEF")  # type: ignore[no-untyped-call]
_LIBRARY.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor(a!) k_pool, Tensor(b!) v_pool, "
    "Tensor write_locations, Tensor page_table, Tensor attention_rows, Tensor? block_bounds, "
    "Tensor(c!) out, float scale, int window, bool last_only) -> ()"
)
_LIBRARY.impl("attention", attention_, "CPU")
# On a build of torch without CUDA the registration is there and never called.
_LIBRARY.impl("attention", attention_cuda_, "CUDA")


def attention_op() -> Any:
    """The operator overload: :func:`attention_` on a CPU, :func:`attention_cuda_` on CUDA."""
    return torch.ops.firstlight.attention.default
