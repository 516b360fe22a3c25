"""One small batch through a kernel and through plain operations: may the kernel serve here?

A kernel of our own is compiled on the machine that runs it. What goes wrong there must not reach an
answer, nor end a start: plain operations serve then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from firstlight.attention.gathered import attention_gathered_

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 3e-2}
_PAGE, _PAGES, _KV_HEADS, _HEADS, _DIM = 16, 24, 2, 4, 64
_CHUNKS = ((0, 70), (33, 7))
"""Of each request: positions before the batch, and rows in it."""


def fault_of(kernel: Callable[..., Any], device: torch.device) -> str | None:
    """Why ``kernel`` must not serve on ``device``, in a sentence; None if it may.

    Args:
        kernel: has the arguments of :func:`firstlight.attention.cpu.attention_`.
    """
    for dtype, allowed in _TOLERANCE.items():
        for window, last_only in ((0, False), (20, False), (0, True), (20, True)):
            case = f"{dtype}, window {window}, {'last rows' if last_only else 'all rows'}"
            try:
                want, got = (
                    _run(function, device, dtype, window, last_only)
                    for function in (attention_gathered_, kernel)
                )
                apart = max(float((a - b).abs().max()) for a, b in zip(want, got, strict=True))
            except Exception as error:  # a compiler's and a driver's errors are of any kind
                return f"{case}: {type(error).__name__}: {str(error).strip()[:200]}"
            if not apart <= allowed:
                return f"{case}: results differ by {apart:.1e}, allowed is {allowed:.0e}"
    return None


def _run(
    function: Callable[..., Any],
    device: torch.device,
    dtype: torch.dtype,
    window: int,
    last_only: bool,
) -> tuple[Tensor, Tensor]:
    """The output and the keys' pool, as doubles on the host."""
    drawn = _draw(device, dtype)
    rows = sum(n for _, n in _CHUNKS)
    facts, table, places = _metadata()
    asked = len(facts) if last_only else rows + 2
    q = next(drawn)[:asked, None, :].repeat(1, _HEADS, 1)
    q += torch.arange(_HEADS, device=device).view(1, -1, 1).to(dtype) / 8
    k, v = (next(drawn)[: rows + 2, None, :].repeat(1, _KV_HEADS, 1) for _ in range(2))
    pools = [
        next(drawn)[: _PAGES * _PAGE].view(1, _PAGES, _PAGE, _DIM).repeat(_KV_HEADS, 1, 1, 1)
        .permute(1, 2, 0, 3)
        for _ in range(2)
    ]  # fmt: skip
    out = torch.full((asked, _HEADS, _DIM), torch.nan, dtype=dtype, device=device)
    function(
        q, k, v, *pools, places.to(device), table.to(device), facts.to(device), None, out,
        _DIM**-0.5, window, last_only,
    )  # fmt: skip
    return out.double().cpu(), pools[0].double().cpu()


def _draw(device: torch.device, dtype: torch.dtype) -> Iterator[Tensor]:
    """Normal rows, the same at each call."""
    generator = torch.Generator().manual_seed(0)
    while True:
        yield torch.randn(_PAGES * _PAGE, _DIM, generator=generator).to(device, dtype)


def _metadata() -> tuple[Tensor, Tensor, Tensor]:
    """Facts of the requests and of one that is idle, their scattered pages, and write places."""
    pages = iter(range(1, _PAGES, 2))
    table = torch.zeros(len(_CHUNKS) + 1, 8, dtype=torch.int32)
    facts, places, first = [], [], 0
    for i, (start, rows) in enumerate(_CHUNKS):
        own = [next(pages) for _ in range(-(-(start + rows) // _PAGE))]
        table[i, : len(own)] = torch.tensor(own, dtype=torch.int32)
        facts.append([first, rows, start + rows, -1])
        places += [own[p // _PAGE] * _PAGE + p % _PAGE for p in range(start, start + rows)]
        first += rows
    facts.append([0, 0, 0, -1])
    return torch.tensor(facts), table, torch.tensor([*places, 0, 0])
