"""The keys and values of all layers, in pages: one pool a side, one pair of tensors a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.errors import ConfigError
from firstlight.memory.layout import KVLayout
from firstlight.memory.untouched import untouched_zeros


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one attention layer stores per token: ``kv_heads`` keys of ``key_dim`` columns and as
    many values of ``value_dim``."""

    kv_heads: int
    key_dim: int
    value_dim: int


class KVPool:
    """Keys ``[pages, page_size, kv_heads, key_dim]`` and values likewise, one pair a layer.

    ``pages`` are the physical pages of the layer's side, the sink included. In memory all tokens of
    one head lie behind each other, so that attention, which goes head by head, reads a run of pages
    as one stream (``benchmarks/attention_runs.py`` measures what that is worth). The addresses are
    fixed but for :meth:`resize`, so captured graphs may hold them. Memory starts as zeros: a dead
    lane that reads the sink reads finite numbers. On a CPU a page is resident from the first write
    to it on, and not before.

    Args:
        layers: one shape per decoder layer.
        layout: the sides, and which one each layer belongs to.
        n_pages: physical pages of each side, in the layout's order.

    Raises:
        ConfigError: the page size is no power of two, the lengths do not go together, or the
            system refuses so much memory.
    """

    def __init__(
        self,
        layers: Sequence[LayerShape],
        *,
        layout: KVLayout,
        n_pages: Sequence[int],
        page_size: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        if page_size < 1 or page_size & (page_size - 1):
            raise ConfigError(f"page_size = {page_size}; accepted: a power of two")
        if len(layers) != len(layout.side_of_layer) or len(n_pages) != len(layout.sides):
            raise ConfigError(
                f"{len(layers)} layers and {len(n_pages)} page counts do not go with a layout of "
                f"{len(layout.side_of_layer)} layers and {len(layout.sides)} sides"
            )
        self.layout = layout
        self.page_size = page_size
        self._layers = tuple(layers)
        self._dtype, self._device = dtype, device
        self._allocate(n_pages)

    def _allocate(self, n_pages: Sequence[int]) -> None:
        self.n_pages = tuple(n_pages)

        def zeros(side: int, heads: int, dim: int) -> Tensor:
            shape = (heads, n_pages[side], self.page_size, dim)
            return untouched_zeros(shape, self._dtype, self._device).permute(1, 2, 0, 3)

        pairs = list(zip(self.layout.side_of_layer, self._layers, strict=True))
        try:
            self.keys = [zeros(side, layer.kv_heads, layer.key_dim) for side, layer in pairs]
            self.values = [zeros(side, layer.kv_heads, layer.value_dim) for side, layer in pairs]
        except MemoryError as error:
            raise ConfigError(
                f"there is no memory for {max(n_pages)} KV pages: {error}; accepted: fewer kv_pages"
                ", less kv_bytes, a shorter max_context or a smaller max_num_seqs"
            ) from error

    def resize(self, n_pages: Sequence[int]) -> dict[int, Tensor]:
        """Other memory, of zeros, with ``n_pages`` pages a side; nothing is carried over.

        Only before anything is served, and only where no captured graph holds the addresses.

        Returns:
            the new tensor of each old one, by the old one's ``untyped_storage()._cdata``.
        """
        old = (*self.keys, *self.values)
        self._allocate(n_pages)
        new = (*self.keys, *self.values)
        return {o.untyped_storage()._cdata: n for o, n in zip(old, new, strict=True)}

    def copy_rows(self, places: Sequence[tuple[int, int]], rows: int) -> None:
        """Copy the first ``rows`` positions of a page into another, in every layer.

        On a GPU it is issued on the current stream, as steps are: so behind what wrote the page.

        What the page holds behind them, which is nobody's there, goes along: slices of pages would
        take twice as many calls, and calls are what this costs.

        Args:
            places: for each side of the layout, the physical page that is read and the one that is
                written.

        Raises:
            ValueError: so many positions are not in a page.
        """
        if not 0 < rows <= self.page_size:
            raise ValueError(f"{rows} rows of pages of {self.page_size}")
        into: list[Tensor] = []
        out_of: list[Tensor] = []
        for tensors in (self.keys, self.values):
            for side, tensor in zip(self.layout.side_of_layer, tensors, strict=True):
                source, target = places[side]
                into.append(tensor[target])
                out_of.append(tensor[source])
        torch._foreach_copy_(into, out_of)

    def prefault(self) -> None:
        """Make all of the pool resident, by writing the zeros that are in it; before it is used."""
        for tensor in (*self.keys, *self.values):
            tensor.zero_()

    @property
    def nbytes(self) -> int:
        """Bytes of all layers together."""
        return sum(t.nbytes for t in (*self.keys, *self.values))

    @staticmethod
    def bytes_per_page(layers: Sequence[LayerShape], page_size: int, dtype: torch.dtype) -> int:
        """What one page costs over ``layers``, in bytes; give it the layers of one side."""
        columns = sum(layer.kv_heads * (layer.key_dim + layer.value_dim) for layer in layers)
        return columns * page_size * dtype.itemsize
