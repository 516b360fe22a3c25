"""Captures a function over buffers, for tests of the tape."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from firstlight.graphs import Ownership, TapeBackend, TapeGraph


def capture(
    fn: Callable[[], Tensor],
    *,
    slots: dict[str, Tensor] | None = None,
    weights: dict[str, Tensor] | None = None,
    backend: TapeBackend | None = None,
) -> TapeGraph:
    """``fn`` as a graph; everything it touches is named by ``slots`` and ``weights``."""
    owned = Ownership()
    for name, tensor in (slots or {}).items():
        owned.add(tensor, f"slot {name}")
    for name, tensor in (weights or {}).items():
        owned.add(tensor, f"weight {name}", frozen=True)
    backend = TapeBackend() if backend is None else backend
    return backend.capture(fn, owned=owned, label="test")


def check(fn: Callable[[], Tensor], x: Tensor, **options: object) -> TapeGraph:
    """Capture ``fn`` over the slot ``x`` and compare replay with eager, for several contents."""
    graph = capture(fn, slots={"x": x}, **options)  # type: ignore[arg-type]
    for seed in range(3):
        refresh(x, seed)
        before = x.clone()
        replayed = graph.replay().clone()
        after = x.clone()
        x.copy_(before)
        expected = fn()
        assert replayed.shape == expected.shape
        assert replayed.stride() == expected.stride() or not expected.is_contiguous()
        assert torch.equal(replayed.nan_to_num(), expected.nan_to_num())
        assert torch.equal(after, x)
    return graph


def refresh(x: Tensor, seed: int) -> None:
    """New contents: normal floats, integers from 0 to 3."""
    generator = torch.Generator().manual_seed(seed)
    if x.dtype.is_floating_point:
        x.copy_(torch.randn(x.shape, generator=generator))
    else:
        x.copy_(torch.randint(0, 4, x.shape, generator=generator))
