"""Random batches over paged memory, as the engine's metadata describes them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import torch
from torch import Tensor

PADDING = 3
"""Rows of no request behind those of a batch."""


@dataclass(frozen=True, slots=True)
class Case:
    """Sizes of one attention; ``chunks`` are (rows now, context after them) of each request."""

    chunks: tuple[tuple[int, int], ...]
    kv_heads: int = 2
    group: int = 3
    key_dim: int = 64
    value_dim: int = 64
    window: int = 0
    page_size: int = 16
    pages: int = 40
    scattered: bool = False
    blocks: bool = False
    last_only: bool = False
    dtype: torch.dtype = torch.float32
    seed: int = 0

    def with_(self, **changes: Any) -> Case:
        """This case with other sizes."""
        return replace(self, **changes)


def random_case(seed: int, dtype: torch.dtype) -> Case:
    """Sizes drawn by seed: requests of one row and of many, with and without what came before."""
    r = Random(seed)
    rows = [r.choice([1, 1, 2, 7, 8, 20, 70]) for _ in range(r.randint(1, 4))]
    return Case(
        tuple((n, n + r.choice([0, 0, 3, 50, 500])) for n in rows),
        kv_heads=r.choice([1, 2, 3]),
        group=r.choice([1, 2, 3, 4, 7, 9]),
        key_dim=r.choice([8, 18, 40, 64, 80]),
        value_dim=r.choice([1, 16, 33, 64, 96]),
        window=r.choice([0, 0, 5, 17, 100]),
        page_size=r.choice([1, 16, 32]),
        pages=600,
        scattered=r.random() < 0.5,
        blocks=r.random() < 0.3,
        last_only=r.random() < 0.2,
        dtype=dtype,
        seed=seed,
    ).with_(pages=600)


class Memory:
    """Filled pools, and the arguments of an attention over them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        c = case
        g = torch.Generator().manual_seed(c.seed)
        n_pages = 1 + sum(-(-context // c.page_size) for _, context in c.chunks)
        self.k_pool = _pool(c, n_pages, c.key_dim, g)
        self.v_pool = _pool(c, n_pages, c.value_dim, g)
        rows = sum(n for n, _ in c.chunks)
        self.q = torch.randn(rows + PADDING, c.kv_heads * c.group, c.key_dim, generator=g).to(
            c.dtype
        )
        self.k = torch.randn(rows + PADDING, c.kv_heads, c.key_dim, generator=g).to(c.dtype)
        self.v = torch.randn(rows + PADDING, c.kv_heads, c.value_dim, generator=g).to(c.dtype)
        self.table = torch.zeros(len(c.chunks), c.pages, dtype=torch.int32)
        self.facts = torch.zeros(len(c.chunks), 4, dtype=torch.int64)
        self.locations = torch.zeros(rows + PADDING, dtype=torch.int64)
        self.bounds = torch.zeros(rows + PADDING, 2, dtype=torch.int64)
        self._place(g)
        if c.last_only:
            last = self.facts[:, 0] + self.facts[:, 1] - 1
            self.q = self.q[last].contiguous()

    def _place(self, g: torch.Generator) -> None:
        c, first, page = self.case, 0, 1
        for i, (rows, context) in enumerate(c.chunks):
            used = -(-context // c.page_size)
            order = torch.randperm(used, generator=g) if c.scattered else torch.arange(used)
            self.table[i, :used] = page + order
            seen = max(context - rows - c.window + 1, 0) if c.window else 0
            run = -1 if c.scattered else page * c.page_size + seen
            self.facts[i] = torch.tensor([first, rows, context, run])
            for t in range(rows):
                p = context - rows + t
                self.locations[first + t] = (
                    int(self.table[i, p // c.page_size]) * c.page_size + p % c.page_size
                )
                self.bounds[first + t] = torch.tensor([p, p + 1])
            if c.blocks and rows > 4:
                start = context - rows
                self.bounds[first + 1 : first + 4] = torch.tensor([start + 1, start + 4])
            first, page = first + rows, page + used

    def arguments(self, out: Tensor) -> tuple[Any, ...]:
        """Of ``firstlight::attention``; pools are written."""
        c = self.case
        return (
            self.q, self.k, self.v, self.k_pool, self.v_pool, self.locations, self.table,
            self.facts, self.bounds if c.blocks else None, out, c.key_dim**-0.5, c.window,
            c.last_only,
        )  # fmt: skip

    def out(self) -> Tensor:
        """Where results go, full of a value that must not stay."""
        c = self.case
        return torch.full((self.q.shape[0], c.kv_heads * c.group, c.value_dim), 9.0, dtype=c.dtype)

    def attend(self) -> Tensor:
        """The compiled kernel's results."""
        out = self.out()
        torch.ops.firstlight.attend_rows(*self.arguments(out))
        return out


def _pool(c: Case, pages: int, dim: int, g: torch.Generator) -> Tensor:
    values = torch.randn(c.kv_heads, pages, c.page_size, dim, generator=g)
    return values.to(c.dtype).permute(1, 2, 0, 3)
