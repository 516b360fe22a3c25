"""Index types of the KV memory, so that a page number never stands where a token slot belongs.

Two questions, four types. Which space: *virtual* ids are what a request holds and what the prefix
cache remembers; *physical* ids say where in a side's pool the keys and values lie. Which unit: a
*page*, or a *token slot*. With pages of ``P`` tokens, slot ``s`` lies in page ``s // P`` at offset
``s % P``, in both spaces. A side's page map is the only way from virtual to physical.

Page 0 of every space is the sink. It belongs to nobody: padding rows write there, and dead lanes,
missing entries and tombstones read from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NewType

VirtualPage = NewType("VirtualPage", int)
VirtualSlot = NewType("VirtualSlot", int)
PhysicalPage = NewType("PhysicalPage", int)
PhysicalSlot = NewType("PhysicalSlot", int)

SINK_PAGE = PhysicalPage(0)
VIRTUAL_SINK = VirtualPage(0)


def pages_for(n_tokens: int, page_size: int) -> int:
    """How many pages ``n_tokens`` tokens fill, the last one perhaps in part."""
    return -(-n_tokens // page_size)


def slot_of(pages: Sequence[PhysicalPage], position: int, page_size: int) -> PhysicalSlot:
    """The physical slot of the token at ``position`` of a request whose pages lie at ``pages``."""
    return PhysicalSlot(pages[position // page_size] * page_size + position % page_size)


def virtual_slot_of(pages: Sequence[VirtualPage], position: int, page_size: int) -> VirtualSlot:
    """The virtual slot of the token at ``position`` of a request that holds ``pages``."""
    return VirtualSlot(pages[position // page_size] * page_size + position % page_size)


def page_of(slot: PhysicalSlot, page_size: int) -> PhysicalPage:
    """The physical page that a physical token slot lies in."""
    return PhysicalPage(slot // page_size)


def virtual_page_of(slot: VirtualSlot, page_size: int) -> VirtualPage:
    """The virtual page that a virtual token slot lies in."""
    return VirtualPage(slot // page_size)
