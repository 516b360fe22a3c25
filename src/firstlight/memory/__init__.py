"""Paged KV memory: typed indices, the page allocator and the pools of keys and values."""

from __future__ import annotations

from firstlight.memory.ids import SINK_PAGE, PhysicalPage, PhysicalSlot
from firstlight.memory.page import PageAllocator
from firstlight.memory.pool import KVPool, LayerShape

__all__ = ["SINK_PAGE", "KVPool", "LayerShape", "PageAllocator", "PhysicalPage", "PhysicalSlot"]
