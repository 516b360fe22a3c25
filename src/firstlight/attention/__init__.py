"""Attention over paged memory: its metadata, the operation that graphs hold, its CPU kernel."""

from __future__ import annotations

from firstlight.attention.batch import RowsInMemory
from firstlight.attention.context import PagedAttention, SideViews
from firstlight.attention.cpu import attention_
from firstlight.attention.layer import AttentionLayer
from firstlight.attention.metadata import attention_values, slot_suffix
from firstlight.attention.op import attention_op

__all__ = [
    "AttentionLayer",
    "PagedAttention",
    "RowsInMemory",
    "SideViews",
    "attention_",
    "attention_op",
    "attention_values",
    "slot_suffix",
]
