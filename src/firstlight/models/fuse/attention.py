"""The attention layer of Llama's kind with one multiplication for query, key and value."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from firstlight.models.attention_hook import NAME
from firstlight.models.fuse.linear import PackedLinear, plain_linears


class FusedAttention(nn.Module):
    """Projections, optional RMSNorm per head, rotary embedding, attention, output projection.

    Queries and keys are normalised and rotated together, as heads of one tensor. ``scale`` and
    ``window`` are what the replaced layer was heard to ask attention for.
    """

    def __init__(self, attention: Any, *, scale: float, window: int | None) -> None:
        super().__init__()
        a = attention
        self.scale = scale
        self.window = window
        self.layer_idx = int(a.layer_idx)
        self.head_dim = int(a.head_dim)
        self.heads = a.q_proj.out_features // self.head_dim
        self.kv_heads = a.k_proj.out_features // self.head_dim
        self.qkv = PackedLinear([a.q_proj, a.k_proj, a.v_proj])
        self.out = PackedLinear([a.o_proj])
        self.norm_weight: Tensor | None = None
        if getattr(a, "q_norm", None) is not None:
            self.eps = float(a.q_norm.variance_epsilon)
            per_head = [a.q_norm.weight] * self.heads + [a.k_norm.weight] * self.kv_heads
            self.norm_weight = torch.stack([w.detach() for w in per_head])

    @staticmethod
    def takes(attention: object) -> bool:
        """Whether the parts are there; the parity check says whether they act alike."""
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
        norms = [getattr(attention, n, None) for n in ("q_norm", "k_norm")]
        return (
            plain_linears(*(getattr(attention, n, None) for n in names))
            and hasattr(attention, "head_dim")
            and hasattr(attention, "layer_idx")
            and (norms == [None, None] or all(hasattr(n, "variance_epsilon") for n in norms))
        )

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """``[1, T, hidden]`` to the same and None, as transformers' layers expect it."""
        qkv = self.qkv(hidden_states[0])
        rows, both = qkv.shape[0], (self.heads + self.kv_heads) * self.head_dim
        qk = self._normed(qkv[:, :both].view(rows, -1, self.head_dim))
        cos, sin = (t.transpose(0, 1) for t in position_embeddings)
        qk = qk * cos + _rotate_half(qk) * sin
        attended = kwargs[NAME].attend(
            self.layer_idx,
            qk[:, : self.heads],
            qk[:, self.heads :],
            qkv[:, both:].view(rows, self.kv_heads, self.head_dim),
            scale=self.scale,
            window=self.window,
        )
        return self.out(attended.reshape(rows, -1))[None], None

    def _normed(self, qk: Tensor) -> Tensor:
        if self.norm_weight is None:
            return qk
        wide = qk.float()
        inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.norm_weight * (wide * inverse).to(qk.dtype)


def _rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)
