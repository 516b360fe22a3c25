"""The keys and values of all layers, in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.errors import ConfigError


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores per token: ``kv_heads`` keys of ``key_dim`` columns and as
    many values of ``value_dim``."""

    kv_heads: int
    key_dim: int
    value_dim: int


class KVPool:
    """Keys ``[pages, page_size, kv_heads, key_dim]`` and values likewise, one pair a layer.

    The addresses are fixed for the pool's life, so captured graphs may hold them. Memory starts as
    zeros: a dead lane that reads the sink reads finite numbers.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        *,
        n_pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if page_size < 1 or page_size & (page_size - 1):
            raise ConfigError(f"page_size = {page_size}; accepted: a power of two")
        self.n_pages = n_pages
        self.page_size = page_size

        def zeros(heads: int, dim: int) -> Tensor:
            return torch.zeros(n_pages, page_size, heads, dim, dtype=dtype, device=device)

        self.keys = [zeros(layer.kv_heads, layer.key_dim) for layer in layers]
        self.values = [zeros(layer.kv_heads, layer.value_dim) for layer in layers]

    @property
    def nbytes(self) -> int:
        """Bytes of all layers together."""
        return sum(t.nbytes for t in (*self.keys, *self.values))

    @staticmethod
    def bytes_per_page(layers: Sequence[LayerShape], page_size: int, dtype: torch.dtype) -> int:
        """What one page costs over all layers, in bytes."""
        columns = sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in layers)
        return columns * page_size * dtype.itemsize
