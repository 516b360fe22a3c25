"""Paged KV memory: typed indices, page maps, the prefix cache and the pools of keys and values.

All but the pools is pure Python and numpy. What needs torch is imported when it is asked for, so
that a scheduler can be built and tested without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from firstlight.memory.holding import Holding, MemoryUsage, SpaceUsage
from firstlight.memory.ids import (
    SINK_PAGE,
    VIRTUAL_SINK,
    PhysicalPage,
    PhysicalSlot,
    VirtualPage,
    VirtualSlot,
)
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import KVLayout, SideSpec
from firstlight.memory.page import PageAllocator
from firstlight.memory.page_map import IdentityMap, PageMap, Translation
from firstlight.memory.prefix_key import MediaKey, PrefixKey

if TYPE_CHECKING:
    from firstlight.memory.pool import KVPool, LayerShape

__all__ = [
    "SINK_PAGE",
    "VIRTUAL_SINK",
    "Holding",
    "IdentityMap",
    "KVLayout",
    "KVMemory",
    "KVPool",
    "LayerShape",
    "MediaKey",
    "MemoryUsage",
    "PageAllocator",
    "PageMap",
    "PhysicalPage",
    "PhysicalSlot",
    "PrefixKey",
    "SideSpec",
    "SpaceUsage",
    "Translation",
    "VirtualPage",
    "VirtualSlot",
]


def __getattr__(name: str) -> object:
    if name in ("KVPool", "LayerShape"):
        return getattr(import_module("firstlight.memory.pool"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
