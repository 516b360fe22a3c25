"""Index types of the KV memory, so that a page number never stands where a token slot belongs.

Token slot ``s`` of a pool with ``page_size`` P lies in page ``s // P`` at offset ``s % P``.
"""

from __future__ import annotations

from typing import NewType

PhysicalPage = NewType("PhysicalPage", int)
PhysicalSlot = NewType("PhysicalSlot", int)

# Page 0 belongs to nobody: padding rows write there and dead lanes read from there.
SINK_PAGE = PhysicalPage(0)


def first_slot(page: PhysicalPage, page_size: int) -> PhysicalSlot:
    """The slot of a page's first token."""
    return PhysicalSlot(page * page_size)


def slot_of(pages: list[PhysicalPage], position: int, page_size: int) -> PhysicalSlot:
    """The slot that holds the token at ``position`` of a request that owns ``pages``."""
    return PhysicalSlot(pages[position // page_size] * page_size + position % page_size)
