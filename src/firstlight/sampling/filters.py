"""Filters that keep the likely tokens; what they drop becomes minus infinity.

Each takes logits [B, V] float32 and one parameter per row, and leaves at least one token per row.
Equal logits rank by token id, lowest first, so that a cut through a tie is the same every time.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from firstlight.transfer import on_device

# A nucleus usually lies within this many tokens; ranking only these is some 20 times cheaper than
# sorting a vocabulary of 150,000. Rows whose nucleus is larger are sorted whole.
_HEAD = 1024


def top_k(logits: Tensor, k: Sequence[int]) -> Tensor:
    """Keep exactly the ``k`` most likely tokens (Fan et al. 2018, section 5.4).

    Args:
        logits: [B, V].
        k: B numbers; 0, or V and more, keeps all.
    """
    size = logits.shape[-1]
    limits = [n if 0 < n < size else size for n in k]
    largest = max((n for n in limits if n < size), default=0)
    if not largest:
        return logits
    wanted = on_device(limits, torch.int64, logits.device)
    ranked = logits.topk(largest, dim=-1).values
    edge = ranked.gather(-1, wanted.clamp(max=largest)[:, None] - 1)
    active = wanted < size
    keep = logits >= edge
    spare = keep.sum(-1, keepdim=True) - wanted[:, None]
    # On a GPU asking whether there are ties takes longer than treating them.
    if logits.device.type != "cpu" or bool(((spare > 0)[:, 0] & active).any()):
        # Of the tokens that tie at the edge, the last ones go.
        tied = logits == edge
        room = tied.sum(-1, keepdim=True) - spare
        keep &= ~tied | (tied.cumsum(-1) <= room)
    return logits.masked_fill(~(keep | ~active[:, None]), -torch.inf)


def top_p(logits: Tensor, p: Sequence[float]) -> Tensor:
    """Keep the smallest set of most likely tokens whose probability reaches ``p``.

    Nucleus sampling (Holtzman et al. 2020, section 3.1). A token stays if the probability of those
    ranked before it is below ``p``; so the first always stays.

    Args:
        logits: [B, V].
        p: B numbers in (0, 1]; 1 keeps all.
    """
    places = [i for i, n in enumerate(p) if n < 1]
    if not places:
        return logits
    rows = on_device(places, torch.int64, logits.device)
    limits = on_device([p[i] for i in places], torch.float64, logits.device)
    probs = logits.softmax(-1)
    keep = torch.ones_like(logits, dtype=torch.bool)
    size = logits.shape[-1]
    # A GPU sorts all rows in less time than it takes to ask which ones need it.
    if size > 2 * _HEAD and logits.device.type == "cpu":
        done = _nucleus_in_head(probs[rows], limits, keep, rows)
        rows, limits = rows[~done], limits[~done]
    if len(rows):
        order = probs[rows].sort(dim=-1, descending=True, stable=True)
        keep[rows] = _scatter(_before(order.values) < limits[:, None], order.indices, size)
    return logits.masked_fill(~keep, -torch.inf)


def min_p(logits: Tensor, p: Tensor) -> Tensor:
    """Keep tokens at least ``p`` times as likely as the likeliest (Nguyen et al. 2024, section 3).

    Args:
        logits: [B, V].
        p: [B] in [0, 1]; 0 keeps all.
    """
    # A ratio of probabilities is a difference of logits: no softmax is needed.
    edge = logits.amax(-1) + p.log()
    return logits.masked_fill(logits < edge[:, None], -torch.inf)


def rank(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The ``n`` largest of each row [B, V] and their ids, in descending order, ties by lowest id.

    Returns:
        values [B, n], ids [B, n] int64.
    """
    # The library's topk cuts through a tie at rank n as it likes; so cut first.
    return _largest(top_k(values, [n] * len(values)), n)


def candidates(logits: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The ``n`` largest logits of each row [B, V], in the order of their ids, and the ids.

    What is done to the n columns afterwards costs nothing of the vocabulary's size.
    """
    cut = top_k(logits, [n] * len(logits))
    ids = cut.topk(n, dim=-1).indices.sort(dim=-1).values
    return logits.gather(-1, ids), ids


def _largest(values: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Like ``rank``, but of a tie at rank ``n`` any members."""
    found = values.topk(n, dim=-1)
    by_id = found.indices.sort(dim=-1)
    by_value = found.values.gather(-1, by_id.indices).sort(dim=-1, descending=True, stable=True)
    return by_value.values, by_id.values.gather(-1, by_value.indices)


def _before(ranked: Tensor) -> Tensor:
    """Probability ranked before each place: [B, n] float64."""
    ranked = ranked.double()
    return ranked.cumsum(-1) - ranked


def _scatter(keep: Tensor, ids: Tensor, size: int) -> Tensor:
    return keep.new_zeros(keep.shape[0], size).scatter_(-1, ids, keep)


def _nucleus_in_head(probs: Tensor, p: Tensor, keep: Tensor, rows: Tensor) -> Tensor:
    """Settle the rows whose nucleus ends inside the head; [B] bool, true where that was so."""
    values, ids = _largest(probs, _HEAD)
    # The cut must fall above the head's last value, with which tokens outside may tie.
    last = values[:, -1:]
    done = torch.where(values > last, values.double(), 0.0).sum(-1) >= p
    keep[rows[done]] = _scatter(_before(values) < p[:, None], ids, probs.shape[-1])[done]
    return done
