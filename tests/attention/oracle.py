"""Attention by its definition, in float64, over a request's whole keys and values: no pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Block = tuple[int, int]


@dataclass(frozen=True)
class Whole:
    """Queries, keys and values of all positions of one request, ``[n, heads, dim]`` each."""

    q: Tensor
    k: Tensor
    v: Tensor
    blocks: Sequence[Block] = ()

    @classmethod
    def random(
        cls,
        n: int,
        *,
        seed: int,
        heads: int = 4,
        kv_heads: int = 2,
        dims: tuple[int, int] = (8, 8),
        blocks: Sequence[Block] = (),
    ) -> Whole:
        """Normal variates; ``dims`` are the columns of a key and of a value."""
        g = torch.Generator().manual_seed(seed)
        q, k = (torch.randn(n, h, dims[0], generator=g) for h in (heads, kv_heads))
        return cls(q, k, torch.randn(n, kv_heads, dims[1], generator=g), blocks)

    def seen(self, window: int) -> Tensor:
        """Bool ``[n, n]``: whether the row at p sees the key at j, by the rule in words."""
        p = torch.arange(len(self.q)).unsqueeze(1)
        j = torch.arange(len(self.q)).unsqueeze(0)
        table = j <= p
        for low, high in self.blocks:
            table |= (low <= p) & (p < high) & (low <= j) & (j < high)
        return table & (p - j < window) if window else table

    def attention(self, window: int = 0, scale: float | None = None) -> Tensor:
        """float64 ``[n, heads, value_dim]``."""
        share = self.q.shape[1] // self.k.shape[1]
        k, v = (t.repeat_interleave(share, 1).double() for t in (self.k, self.v))
        factor = self.q.shape[2] ** -0.5 if scale is None else scale
        scores = torch.einsum("phd,jhd->hpj", self.q.double(), k) * factor
        weights = scores.masked_fill(~self.seen(window), -math.inf).softmax(-1)
        return torch.einsum("hpj,jhd->phd", weights, v)
