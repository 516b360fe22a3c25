"""Penalties on tokens that occurred already, and biases, written into the logits in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from firstlight.transfer import on_device

_LEAST: Final = 1e-30
"""A smaller penalty counts as this one: logits stay finite, and what is impossible stays so."""


def repetition_penalty_(row: Tensor, seen: Iterable[int], penalty: float) -> None:
    """Divide positive and multiply negative logits of ``seen`` tokens by ``penalty``.

    The definition of CTRL (Keskar et al. 2019, section 4.1), with the split by sign that makes it a
    penalty for negative logits too.

    Args:
        row: [V] float32, changed in place.
        seen: token ids of prompt and output; ids outside the vocabulary are ignored.
        penalty: above 1 discourages, below 1 encourages.
    """
    ids = _ids(row, seen)
    scores, penalty = row[ids], max(penalty, _LEAST)
    row[ids] = torch.where(scores < 0, scores * penalty, scores / penalty)


def occurrence_penalties_(
    row: Tensor, counts: Mapping[int, int], presence: float, frequency: float
) -> None:
    """Subtract ``presence + frequency * count`` from the logits of generated tokens.

    OpenAI's definition: the prompt does not count.

    Args:
        row: [V] float32, changed in place.
        counts: occurrences by token id; ids outside the vocabulary are ignored.
    """
    inside = {i: n for i, n in counts.items() if 0 <= i < row.shape[-1]}
    amounts = [presence + frequency * n for n in inside.values()]
    row[_ids(row, inside)] -= on_device(amounts, row.dtype, row.device)


def bias_(row: Tensor, biases: Sequence[tuple[int, float]]) -> None:
    """Add to the logits of tokens (OpenAI's ``logit_bias``).

    Args:
        row: [V] float32, changed in place; what is impossible stays so.
        biases: token ids, each once, and what is added; ids outside the vocabulary are ignored.
    """
    inside = [(i, bias) for i, bias in biases if 0 <= i < row.shape[-1]]
    amounts = on_device([bias for _, bias in inside], row.dtype, row.device)
    row[_ids(row, (i for i, _ in inside))] += amounts


def suppress_(row: Tensor, ids: Iterable[int]) -> None:
    """Make the tokens ``ids`` impossible. ``row`` [V] float32 is changed in place."""
    row[_ids(row, ids)] = -torch.inf


def _ids(row: Tensor, ids: Iterable[int]) -> Tensor:
    size = row.shape[-1]
    inside = [i for i in ids if 0 <= i < size]
    return on_device(inside, torch.int64, row.device)
