"""The attention layer of Llama's kind with one multiplication for query, key and value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from firstlight.attention import AttentionLayer
from firstlight.models.attention_hook import NAME
from firstlight.models.fuse.kit import Kit
from firstlight.models.fuse.linear import plain_linears

_LARGEST_HEAD = 1024
"""Columns that the compiled kernel has room for."""


class FusedAttention(nn.Module):
    """Projections, optional RMSNorm per head, rotary embedding, attention, output projection.

    Queries and keys are normalised and rotated together, as heads of one tensor. ``layer`` is
    what the replaced layer was heard to ask attention for.
    """

    def __init__(self, attention: Any, layer: AttentionLayer, kit: Kit) -> None:
        super().__init__()
        a = attention
        self.layer = layer
        self.head_dim = int(a.head_dim)
        self.heads = a.q_proj.out_features // self.head_dim
        self.kv_heads = a.k_proj.out_features // self.head_dim
        self.qkv = kit.linear([a.q_proj, a.k_proj, a.v_proj])
        self.out = kit.linear([a.o_proj])
        norm = HeadNorm.of(a, self.heads, self.kv_heads)
        self.turn = Turn(norm, self.head_dim, native=kit.takes(a.q_proj.weight))

    @staticmethod
    def takes(attention: object) -> bool:
        """Whether the parts are there; the parity check says whether they act alike."""
        names = ("q_proj", "k_proj", "v_proj", "o_proj")
        norms = [getattr(attention, n, None) for n in ("q_norm", "k_norm")]
        return (
            plain_linears(*(getattr(attention, n, None) for n in names))
            and hasattr(attention, "head_dim")
            and hasattr(attention, "layer_idx")
            and (norms == [None, None] or all(epsilon_of(n) is not None for n in norms))
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
        qk = self.turn(qkv[:, :both], position_embeddings)
        attended = kwargs[NAME].attend(
            self.layer,
            qk[:, : self.heads],
            qk[:, self.heads :],
            qkv[:, both:].view(rows, self.kv_heads, self.head_dim),
        )
        return self.out(attended.reshape(rows, -1))[None], None


class HeadNorm(nn.Module):
    """RMSNorm of each head with the head's own weight; without weights it passes heads through.

    Zhang and Sennrich 2019, arXiv:1910.07467; per head as in Qwen3. With ``offset``, Gemma's
    norm: the weight is an offset from one, and rounding to the activations' type comes last.
    """

    def __init__(self, weights: Sequence[Tensor], eps: float, *, offset: bool = False) -> None:
        super().__init__()
        self.eps = eps
        self.offset = offset
        self.weight = torch.stack(list(weights)) if weights else None
        if self.weight is not None and offset:
            self.weight = 1.0 + self.weight.float()

    @classmethod
    def of(cls, attention: Any, heads: int, kv_heads: int) -> HeadNorm:
        """For ``heads`` queries followed by ``kv_heads`` keys of a layer; either may be 0."""
        if getattr(attention, "q_norm", None) is None:
            return cls([], 0.0)
        q, k = attention.q_norm.weight.detach(), attention.k_norm.weight.detach()
        eps = epsilon_of(attention.q_norm)
        assert eps is not None  # see FusedAttention.takes
        # Which kind of norm it is shows in a name only; whether that is so, parity says.
        offset = not hasattr(attention.q_norm, "variance_epsilon")
        return cls([q] * heads + [k] * kv_heads, eps, offset=offset)

    def forward(self, x: Tensor) -> Tensor:
        """``[T, heads, head_dim]`` to the same."""
        if self.weight is None:
            return x
        wide = x.float()
        inverse = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.offset:
            return (wide * inverse * self.weight).to(x.dtype)
        return self.weight * (wide * inverse).to(x.dtype)


class Turn(nn.Module):
    """The norm of each head, and rotary embedding."""

    def __init__(self, norm: HeadNorm, head_dim: int, *, native: bool) -> None:
        super().__init__()
        self.norm = norm
        self.head_dim = head_dim
        self.native = native and head_dim % 2 == 0 and head_dim <= _LARGEST_HEAD

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
        """``[T, heads * head_dim]`` to ``[T, heads, head_dim]``.

        Args:
            rotary: cosines and sines ``[1, T, head_dim]``.
        """
        norm = self.norm
        if not self.native:
            return rotate(norm(x.view(x.shape[0], -1, self.head_dim)), rotary)
        turned: Tensor = torch.ops.firstlight.rotate(
            x, *rotary, norm.weight, self.head_dim, norm.eps, norm.offset
        )
        return turned


def epsilon_of(norm: object) -> float | None:
    """What a norm adds to the mean square: ``variance_epsilon`` of Llama's kind, or ``eps``."""
    found = getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
    return found if isinstance(found, float) else None


def rotate(x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding (Su et al. 2021, arXiv:2104.09864) of ``[T, heads, head_dim]``.

    Args:
        rotary: cosines and sines ``[1, T, head_dim]``.
    """
    cos, sin = (t.transpose(0, 1) for t in rotary)
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return x * cos + turned * sin
