"""One layer's keys and values as attention reads them: runs of pages as views, others gathered."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class LayerMemory(NamedTuple):
    """A layer's pools, head first: ``[kv_heads, pages, page_size, dim]``.

    Attributes:
        key_slots, value_slots: the same by token slot, ``[kv_heads, slots, dim]``.
        page_table: int32 ``[B, max_pages]``.
    """

    keys: Tensor
    values: Tensor
    key_slots: Tensor
    value_slots: Tensor
    page_table: Tensor

    @classmethod
    def of(cls, k_pool: Tensor, v_pool: Tensor, page_table: Tensor) -> LayerMemory:
        """Views of pools ``[pages, page_size, kv_heads, dim]``."""
        keys, values = k_pool.permute(2, 0, 1, 3), v_pool.permute(2, 0, 1, 3)
        return cls(keys, values, keys.flatten(1, 2), values.flatten(1, 2), page_table)

    def store(self, locations: Tensor, k: Tensor, v: Tensor) -> None:
        """Put rows ``[T, kv_heads, dim]`` at token slots ``locations``."""
        self.key_slots.index_copy_(1, locations, k.transpose(0, 1))
        self.value_slots.index_copy_(1, locations, v.transpose(0, 1))

    def run(self, slot: int, n: int) -> tuple[Tensor, Tensor]:
        """Keys and values ``[kv_heads, n, dim]`` from token slot ``slot`` on: nothing is copied."""
        return self.key_slots.narrow(1, slot, n), self.value_slots.narrow(1, slot, n)

    def gather(self, request: int, begin: int, end: int) -> tuple[Tensor, Tensor]:
        """Positions ``[begin, end)`` of a request, ``[kv_heads, end - begin, dim]``.

        Whole pages are copied: the copy of a page is one block a head, that of a token a row.
        """
        page_size = self.keys.shape[2]
        low, high = begin // page_size, -(-end // page_size)
        pages, skip = self.page_table[request, low:high], begin - low * page_size
        keys = self.keys.index_select(1, pages).flatten(1, 2)
        values = self.values.index_select(1, pages).flatten(1, 2)
        return keys.narrow(1, skip, end - begin), values.narrow(1, skip, end - begin)
