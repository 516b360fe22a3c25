"""One layer's keys and values as attention reads them: runs of pages as views, others gathered."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class LayerMemory(NamedTuple):
    """A layer's keys and values by token slot, ``[slots, kv_heads, dim]``.

    Attributes:
        page_table: int32 ``[B, max_pages]``.
    """

    keys: Tensor
    values: Tensor
    page_table: Tensor
    page_size: int

    @classmethod
    def of(cls, k_pool: Tensor, v_pool: Tensor, page_table: Tensor) -> LayerMemory:
        """Views of pools ``[pages, page_size, kv_heads, dim]``, whatever their order in memory."""
        page_size = k_pool.shape[1]
        k, v = (pool.view(-1, pool.shape[2], pool.shape[3]) for pool in (k_pool, v_pool))
        return cls(k, v, page_table, page_size)

    def store(self, locations: Tensor, k: Tensor, v: Tensor) -> None:
        """Put rows ``[T, kv_heads, dim]`` at token slots ``locations``."""
        self.keys.index_copy_(0, locations, k)
        self.values.index_copy_(0, locations, v)

    def read(self, request: int, begin: int, end: int, slot: int) -> tuple[Tensor, Tensor]:
        """Keys and values of positions ``[begin, end)``, ``[1, kv_heads, end - begin, dim]``.

        Args:
            slot: where they begin if they lie in one run, which is read in place; else below 0:
                their pages are gathered.
        """
        n = end - begin
        if slot >= 0:
            return section(self.keys, slot, n), section(self.values, slot, n)
        low, high = begin // self.page_size, -(-end // self.page_size)
        pages, skip = self.page_table[request, low:high], begin - low * self.page_size
        return self._gather(self.keys, pages, skip, n), self._gather(self.values, pages, skip, n)

    def _gather(self, flat: Tensor, pages: Tensor, skip: int, n: int) -> Tensor:
        """Whole pages are copied: the copy of a page is one block a head, that of a token a row."""
        slots, heads, dim = flat.shape
        by_page = flat.transpose(0, 1).view(heads, slots // self.page_size, self.page_size, dim)
        return by_page.index_select(1, pages).view(1, heads, -1, dim).narrow(2, skip, n)


def section(flat: Tensor, slot: int, n: int) -> Tensor:
    """Token slots ``[slot, slot + n)`` by head, ``[1, kv_heads, n, dim]``: a view.

    One call, where transposing, narrowing and a batch axis are three: with many requests they would
    be most of what a decode step spends outside of kernels.

    Raises:
        IndexError: the slots are not all in the pool.
    """
    slots, heads, dim = flat.shape
    if slot + n > slots:
        raise IndexError(f"token slots [{slot}, {slot + n}) of a pool of {slots}")
    by_slot, by_head, by_column = flat.stride()
    at = flat.storage_offset() + slot * by_slot
    return flat.as_strided((1, heads, n, dim), (0, by_head, by_slot, by_column), at)
