"""Small bodies around an attention-like operation, captured in pieces on the fake device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from firstlight.graphs import Ownership
from firstlight.graphs.backends.cuda import CudaBackend, GraphApi, SegmentedGraph
from tests.graphs.fake_cuda import FakeApi

_LIBRARY: Any = torch.library.Library("firstlight_test", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("attend(Tensor q, Tensor(a!) pool, Tensor rows, Tensor(b!) out) -> ()")

calls: list[Tensor] = []
"""The queries of every call of the operation, for tests that count them."""


def _attend(q: Tensor, pool: Tensor, rows: Tensor, out: Tensor) -> None:
    """Live rows of ``q`` go to the pool and are doubled; other rows of ``out`` are left alone.

    It reads ``rows`` on the host, as an attention kernel's plan does.
    """
    calls.append(q)
    n = int(rows)
    pool[:n].copy_(q[:n])
    out[:n].copy_(2 * pool[:n])


def _attend_all(q: Tensor, pool: Tensor, rows: Tensor, out: Tensor) -> None:
    """The same for the live rows, by operations alone: nothing is read on the host."""
    live = (torch.arange(q.shape[0], device=q.device) < rows)[:, None]
    pool[: q.shape[0]].copy_(torch.where(live, q, pool[: q.shape[0]]))
    out.copy_(torch.where(live, 2 * pool[: q.shape[0]], out))


_LIBRARY.define("attend_all(Tensor q, Tensor(a!) pool, Tensor rows, Tensor(b!) out) -> ()")
for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("attend", _attend, _device)
    _LIBRARY.impl("attend_all", _attend_all, _device)


def attend_op() -> Any:
    """The operation."""
    return torch.ops.firstlight_test.attend.default


def attend_all_op() -> Any:
    """The operation that a graph can hold."""
    return torch.ops.firstlight_test.attend_all.default


class Slots:
    """Static buffers of 6 rows: ``x``, the pool, the number of live rows, a weight."""

    def __init__(self, device: str = "cpu") -> None:
        self.x = torch.zeros(6, 4, device=device)
        self.pool = torch.zeros(8, 4, device=device)
        self.rows = torch.tensor(6, device=device)
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.randn(4, 4, generator=generator).to(device)
        self.owned = Ownership()
        for name in ("x", "pool", "rows"):
            self.owned.add(getattr(self, name), f"slot {name}")
        self.owned.add(self.weight, "weight w", frozen=True)

    def attend(self, q: Tensor, op: Any = None) -> Tensor:
        """Attention of rows ``[n, 4]``."""
        out = torch.empty_like(q)
        (op or attend_op())(q, self.pool, self.rows, out)
        return out

    def layers(self, n: int = 2, attend: Any = None) -> Tensor:
        """A residual stream through ``n`` layers of projection, attention, projection."""
        h = self.x * 1.5
        for _ in range(n):
            h = h + self.attend(h @ self.weight, attend) @ self.weight
        return h

    def refresh(self, seed: int, live: int = 6) -> None:
        """New contents."""
        self.x.copy_(torch.randn(6, 4, generator=torch.Generator().manual_seed(seed)))
        self.pool.zero_()
        self.rows.fill_(live)

    def capture(
        self, fn: Callable[[], Tensor], api: GraphApi | None = None, *, whole: bool = False
    ) -> SegmentedGraph:
        """``fn`` as a graph of a backend of its own."""
        backend = CudaBackend(
            api or FakeApi(), attention=(attend_op(), attend_all_op()), whole=whole
        )
        return backend.capture(fn, owned=self.owned, label="test")
