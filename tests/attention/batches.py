"""Random metadata as the slots of a padded batch hold it, with the tensors of one layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from firstlight.attention import RowsInMemory
from firstlight.attention.metadata import attention_values
from firstlight.memory import IdentityMap, KVLayout, VirtualPage

CASES: dict[str, dict[str, Any]] = {
    "causal": {},
    "window": {"window": 6},
    "window of one": {"window": 1},
    "blocks": {"blocks": True},
    "blocks and a window": {"blocks": True, "window": 5},
    "last rows": {"last_only": True},
    "last rows, window": {"last_only": True, "window": 7},
}
"""Kinds of attention by name: arguments of :func:`batches`."""


class Result(NamedTuple):
    """What one call left."""

    out: Tensor
    k_pool: Tensor
    v_pool: Tensor


@dataclass(frozen=True)
class Batch:
    """One call's arguments; ``run`` gives each callee tensors of its own."""

    tensors: dict[str, Tensor]
    block_bounds: Tensor | None
    window: int
    last_only: bool

    def run(self, kernel: Callable[..., Any]) -> Result:
        """The output and the pools after ``kernel``; the output starts as NaN."""
        t = {name: _copy(value) for name, value in self.tensors.items()}
        rows = len(t["q"])
        out = t["q"].new_full((rows, t["q"].shape[1], t["v"].shape[2]), torch.nan)
        kernel(
            t["q"], t["k"], t["v"], t["k_pool"], t["v_pool"], t["write_locations"],
            t["page_table"], t["attention_rows"], self.block_bounds, out, 0.3, self.window,
            self.last_only,
        )  # fmt: skip
        return Result(out, t["k_pool"], t["v_pool"])

    def to(self, *, dtype: torch.dtype, device: str = "cpu") -> Batch:
        """The same elsewhere; numbers that are no indices as ``dtype``."""
        tensors = {
            name: _copy(t.to(device, dtype if t.is_floating_point() else t.dtype))
            for name, t in self.tensors.items()
        }
        bounds = None if self.block_bounds is None else self.block_bounds.to(device)
        return replace(self, tensors=tensors, block_bounds=bounds)

    def poisoned(self) -> Batch:
        """The same with NaN in every token slot that holds no position of a request."""
        tensors = dict(self.tensors)
        page_size, table = tensors["k_pool"].shape[1], tensors["page_table"]
        for name in ("k_pool", "v_pool"):
            pool = _copy(tensors[name])
            keep = torch.zeros(pool.shape[:2], dtype=torch.bool)
            for i, context in enumerate(tensors["attention_rows"][:, 2].tolist()):
                for at in range(context):
                    page = int(table[i, at // page_size])
                    keep[page, at % page_size] = page != 0
            pool[~keep] = torch.nan
            tensors[name] = pool
        # The padding rows that are written to the sink are as bad.
        for name in ("k", "v"):
            rows = tensors[name].clone()
            rows[tensors["write_locations"] < page_size] = torch.nan
            tensors[name] = rows
        return replace(self, tensors=tensors)


def _copy(tensor: Tensor) -> Tensor:
    """A copy with the same strides: pools lie head by head in memory."""
    if tensor.dim() != 4:
        return tensor.clone()
    return tensor.permute(2, 0, 1, 3).clone().permute(1, 2, 0, 3)


@st.composite
def requests_in_memory(draw: st.DrawFn, *, page_size: int, blocks: bool) -> list[RowsInMemory]:
    """Chunks anywhere in their contexts, on pages anywhere below 301, or in one run."""
    lengths = [
        (draw(st.integers(0, 40)), draw(st.just(1) | st.integers(1, 20)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    needed = [-(-(start + rows) // page_size) for start, rows in lengths]
    order = draw(st.randoms(use_true_random=False)).sample(range(1, 301), sum(needed))
    found: list[RowsInMemory] = []
    for (start, rows), n in zip(lengths, needed, strict=True):
        own, order = order[:n], order[n:]
        first = min(own[0], 301 - n)
        own = list(range(first, first + n)) if len(lengths) == 1 and draw(st.booleans()) else own
        end, cuts = start + rows, list[int]()
        if blocks:
            cuts = sorted(draw(st.lists(st.integers(start, end), max_size=4, unique=True)))
        pairs = list(zip(cuts[::2], cuts[1::2], strict=False))
        found.append(RowsInMemory([VirtualPage(p) for p in own], start, end, pairs))
    return found


@st.composite
def batches(
    draw: st.DrawFn,
    *,
    blocks: bool = False,
    window: int = 0,
    last_only: bool = False,
    page_sizes: tuple[int, ...] = (1, 4, 16),
    dims: tuple[tuple[int, int], ...] = ((8, 8), (8, 4)),
) -> Batch:
    """Some requests' chunks, then idle request rows and padding rows."""
    page_size = draw(st.sampled_from(page_sizes))
    requests = draw(requests_in_memory(page_size=page_size, blocks=blocks))
    padding, idle = draw(st.integers(0, 4)), draw(st.integers(0, 2))
    side = KVLayout.of([window or None], max_context=10**6).sides[0]
    values = attention_values(
        requests,
        sides=[(side, IdentityMap(301))],
        page_size=page_size,
        max_pages=max(len(r.pages) for r in requests) + draw(st.integers(0, 2)),
        prefix_lm=blocks,
    )
    named = {name.partition(".")[0]: value for name, value in values.items()}
    total = sum(r.end - r.start for r in requests)
    rows, asked = total + padding, len(requests) + idle if last_only else total + padding
    key_dim, value_dim = draw(st.sampled_from(dims))
    g = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    tensors = {
        "q": torch.randn(asked, 4, key_dim, generator=g),
        "k": torch.randn(rows, 2, key_dim, generator=g),
        "v": torch.randn(rows, 2, value_dim, generator=g),
        "k_pool": torch.randn(2, 301, page_size, key_dim, generator=g).permute(1, 2, 0, 3),
        "v_pool": torch.randn(2, 301, page_size, value_dim, generator=g).permute(1, 2, 0, 3),
        "write_locations": _pad(named["write_locations"], padding),
        "page_table": _pad(named["page_table"], idle),
        "attention_rows": _pad(named["attention_rows"], idle),
    }
    bounds = _pad(named["block_bounds"], padding) if blocks else None
    return Batch(tensors, bounds, window, last_only)


def _pad(value: Tensor, n: int) -> Tensor:
    return torch.cat([value, value.new_zeros(n, *value.shape[1:])])
