"""How alike two models say what comes next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class Agreement:
    """Sums over the positions of texts, of a model and of one that it is compared with."""

    positions: int = 0
    predicted: int = 0
    _loss: float = 0.0
    _same: int = 0
    _divergence: float = 0.0

    def add(self, ids: Sequence[int], reference: Tensor, model: Tensor) -> None:
        """Take in one text.

        Args:
            ids: its ``T`` tokens; the first is only given, not predicted.
            reference, model: float32 ``[T, vocabulary]``, log probabilities of what follows each.
        """
        following = torch.tensor(ids[1:])
        self.positions += len(ids)
        self.predicted += len(following)
        self._loss -= float(model[:-1].gather(1, following[:, None]).double().sum())
        self._same += int((reference.argmax(-1) == model.argmax(-1)).sum())
        parts = reference.exp() * (reference - model)
        self._divergence += float(parts.double().sum())

    @property
    def perplexity(self) -> float:
        """Of the model, over all predicted tokens."""
        return math.exp(self._loss / self.predicted)

    @property
    def top1(self) -> float:
        """Share of positions at which both have the same likeliest token."""
        return self._same / self.positions

    @property
    def kl(self) -> float:
        """Mean of KL(reference || model) in nats."""
        return self._divergence / self.positions
