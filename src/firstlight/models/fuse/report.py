"""What fusing did to a model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class FuseReport:
    """What was swapped, by class name, and what was left as it is, with the reason.

    Attributes:
        stored: how many linear layers hold their weights in which format of fewer bits.
        rounded_inputs: how many multiplications round their inputs to 8 bits.
        one_row_per_request: the body returns ``[B, hidden_size]``, the last row of each request,
            and not a row per token.
    """

    swapped: dict[str, int] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    rounded_inputs: int = 0
    one_row_per_request: bool = False

    def count(self, name: str) -> None:
        """One more module of this class was swapped."""
        self.swapped[name] = self.swapped.get(name, 0) + 1
