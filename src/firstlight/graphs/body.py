"""What a decoder stack takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import torch


@dataclass(frozen=True, slots=True)
class BodyInputs:
    """Views of the slots for T padded rows; the same addresses at capture and at replay.

    Attributes:
        embeds: [T, input_embeds_hidden_size], model dtype: the merged rows.
        positions: [R, T] int64; R is the contract's position rank.
        planes: per-token inputs beside the row, by name.
        attention: what the body's attention operation needs, passed through untouched.
    """

    embeds: torch.Tensor
    positions: torch.Tensor
    planes: Mapping[str, torch.Tensor] = field(default_factory=dict)
    attention: object = None


class Body(Protocol):
    """The decoder stack without embedding lookup and LM head."""

    def __call__(self, inputs: BodyInputs, /) -> torch.Tensor:
        """Hidden states [T, hidden_size]."""
        ...
