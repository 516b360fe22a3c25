"""What a decoder layer asks attention for, beside its tensors."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AttentionLayer:
    """The declared facts of one layer's attention; no mask tensor stands beside them.

    Attributes:
        index: the decoder layer, from 0: which keys and values of the pool are its own.
        scale: factor of the scores, before softmax.
        window: positions a query sees at most, itself included; None is all before it.
    """

    index: int
    scale: float
    window: int | None = None
