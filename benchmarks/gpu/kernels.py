"""Our own Triton kernels against torch's operations that do the same, on a GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

_ROWS = (1, 64, 1024)
_RUNS = 50
_REQUESTS = (1, 16)
_CONTEXT = 2048


def kernels(device: str) -> dict[str, Any]:
    """Microseconds of storing keys and values, and of writing text rows into a wide slot."""
    if device != "cuda":
        return {"dropped": True, "note": "in an interpreter their times say nothing"}
    if importlib.util.find_spec("triton") is None:
        return {"dropped": True, "note": "triton is not installed here"}
    rows = {str(n): _store(n) | _scatter(n) for n in _ROWS}
    rows |= {f"{n} requests": _attention(n) for n in _REQUESTS}
    return {"kernels_us": rows}


def _attention(n: int) -> dict[str, float]:
    """A decode step's attention at a context of 2,048, by each kernel that serves this GPU."""
    from firstlight.attention.cuda import kernel_of, one_row_each, usable
    from firstlight.attention.serves import GATHERED, Choice

    pages = _CONTEXT // 256
    shape = (8, n * pages + 1, 256, 128)
    pools = [torch.zeros(shape, device="cuda", dtype=torch.bfloat16).permute(1, 2, 0, 3)] * 2
    table = torch.arange(1, n * pages + 1, device="cuda", dtype=torch.int32).view(n, pages)
    row = torch.arange(n, device="cuda")
    facts = torch.stack([row, row * 0 + 1, row * 0 + _CONTEXT, row * 0 - 1], 1)
    q, out = (torch.zeros(n, 16, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    kv = torch.zeros(n, 8, 128, device="cuda", dtype=torch.bfloat16)
    found = {}
    for name in (*usable(torch.cuda.current_device()), GATHERED):
        attend = one_row_each(kernel_of(Choice(name)))
        arguments = (q, kv, kv, *pools, table[:, -1].long() * 256 + 255, table, facts, None, out,
                     128**-0.5, 0, False)  # fmt: skip
        found[f"attention, {name}"] = _microseconds(partial(attend, *arguments))
    return found


def _store(n: int) -> dict[str, float]:
    from firstlight.attention.layer_memory import LayerMemory
    from firstlight.gpu.rows import store_rows

    k, v = (torch.randn(n, 8, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    pools = [
        torch.zeros(8, 64, 256, 128, device="cuda", dtype=torch.bfloat16).permute(1, 2, 0, 3)
        for _ in range(2)
    ]
    places = torch.randperm(64 * 256, device="cuda")[:n]
    memory = LayerMemory.of(pools[0], pools[1], places)
    return {
        "store, torch": _microseconds(lambda: memory.store(places, k, v)),
        "store, own": _microseconds(lambda: store_rows(k, v, pools[0], pools[1], places)),
    }


def _scatter(n: int) -> dict[str, float]:
    from firstlight.gpu.rows import scatter_rows

    into = torch.zeros(n, 4 * 2048, device="cuda", dtype=torch.bfloat16)
    rows = torch.randn(n, 2048, device="cuda", dtype=torch.bfloat16)
    places = torch.arange(n, device="cuda")

    def plain() -> None:
        into[:, :2048].copy_(rows)
        into[:, 2048:].zero_()

    return {
        "text rows, torch": _microseconds(plain),
        "text rows, own": _microseconds(lambda: scatter_rows(into, rows, places)),
    }


def _microseconds(call: Callable[[], Tensor | None]) -> float:
    """Mean of the device's own time over many calls in a row, after three."""
    for _ in range(3):
        call()
    start, end = (_event() for _ in range(2))
    start.record()
    for _ in range(_RUNS):
        call()
    end.record()
    end.synchronize()
    return round(float(start.elapsed_time(end)) * 1e3 / _RUNS, 2)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
