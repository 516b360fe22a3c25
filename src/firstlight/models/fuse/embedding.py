"""The embedding of a model whose LM head has the same weights: one packed copy serves both."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from firstlight.models.fuse.kit import NativeLinear
from firstlight.native import WeightFormat
from firstlight.native.calls import LANES

_WORDS = {WeightFormat.FLOAT32: torch.float32, WeightFormat.BFLOAT16: torch.int32}
"""What a lane of a panel holds: one weight, or a pair of them."""

_LOOKED_UP = 1024
"""Ids for which the two are compared: as many over all of the vocabulary, its ends among them."""


class PackedEmbedding(nn.Module):
    """Rows of the weight that an LM head has packed, gathered from its panels, bit for bit.

    A row lies in as many pieces as it has pairs, which makes a lookup slower by about a
    microsecond a row; the second copy of a vocabulary's weights is spared for it.

    Args:
        head: of the same weights, as they are; not in codes.
        scale: multiplies each row, in the weights' type; None for 1.
    """

    def __init__(self, head: NativeLinear, scale: Tensor | None = None) -> None:
        super().__init__()
        word = _WORDS[WeightFormat(head.format)]
        self.panels = head.data.view(word).view(-(-head.out_features // LANES), -1, LANES)
        self.num_embeddings, self.embedding_dim = head.out_features, head.in_features
        self.scale = None if scale is None else scale.to(head.weight.dtype)
        # Models read their dtype off their parameters, and there may be no other.
        self.weight = nn.Parameter(head.weight, requires_grad=False)

    def forward(self, ids: Tensor) -> Tensor:
        """int64 ids of any shape to ``[..., embedding_dim]``.

        Raises:
            IndexError: an id is below 0 or beyond the vocabulary.
        """
        flat = ids.reshape(-1)
        if flat.numel():
            low, high = (int(end) for end in flat.aminmax())
            if low < 0 or high >= self.num_embeddings:
                raise IndexError(f"ids from {low} to {high}; there are {self.num_embeddings}")
        rows = self.panels[flat // LANES, :, flat % LANES].view(self.weight.dtype)
        rows = rows.view(*ids.shape, self.embedding_dim)
        return rows if self.scale is None else rows * self.scale


def can_share(embedding: Any, format: WeightFormat | None) -> bool:
    """Whether rows can be looked up in a head that is packed in this format.

    Args:
        format: None for the weights as they are.
    """
    codes = format is not None and format.has_codes
    known = type(embedding) is nn.Embedding or _scale(embedding) is not None
    return known and not codes and embedding.max_norm is None


@torch.no_grad()
def share_head(model: nn.Module, embedding: Any, head: NativeLinear) -> str | None:
    """Have ``model`` look its embeddings up in ``head``; None if it does, else what differs."""
    new = PackedEmbedding(head, _scale(embedding))
    last = embedding.num_embeddings - 1
    ids = torch.linspace(0, last, min(_LOOKED_UP, last + 1), dtype=torch.float64).long()
    if not torch.equal(embedding(ids), new(ids)):
        return "rows of the packed LM head are not those of the embedding"
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if child is embedding:
                setattr(parent, name, new)
    return None


def _scale(embedding: Any) -> Tensor | None:
    """What Gemma's embedding multiplies its rows with."""
    found = getattr(embedding, "embed_scale", None)
    return found if isinstance(embedding, nn.Embedding) and isinstance(found, Tensor) else None
