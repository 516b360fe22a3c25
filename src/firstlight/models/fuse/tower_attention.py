"""Attention of vision towers on compiled kernels: rows see all rows of their own segment."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from firstlight.models.fuse.kit import Kit
from firstlight.models.fuse.linear import plain_linears
from firstlight.models.fuse.parity import compare, random_like
from firstlight.native import can_attend_segments

_OUTPUTS = ("out_proj", "projection_layer")
_NORMS = ("q_norm", "k_norm")
_BOUNDS = (0, 3, 4, 9)
"""Of the segments on which a replacement is compared, over ten rows."""


class SegmentAttention(nn.Module):
    """Attention over rows of several pictures behind one another, as Qwen's towers have it.

    Queries and keys are turned in float32 while they are laid out, and the borders of segments are
    read where they are needed: they never come to the host. Without the compiled kernels, a mask is
    made of them, at the price of scores between all pictures that are encoded together.
    """

    def __init__(self, attention: Any, kit: Kit) -> None:
        super().__init__()
        self.heads = int(attention.num_heads)
        self.scale = float(attention.scaling)
        self.native = kit.kernels is not None
        self.qkv = kit.linear([attention.qkv])
        self.proj = kit.linear([attention.proj])

    @staticmethod
    def takes(module: object, kit: Kit) -> bool:
        """Whether the parts are there; that they act alike is for the parity check to say."""
        parts = (getattr(module, "qkv", None), getattr(module, "proj", None))
        if not isinstance(module, nn.Module) or not plain_linears(*parts) or _has_norms(module):
            return False
        known = ("num_heads", "scaling")
        asked = signature(module.forward).parameters
        return (
            all(hasattr(module, name) for name in known)
            and {"cu_seqlens", "position_embeddings"} <= set(asked)
            and _fits(kit, module.proj, int(module.num_heads))  # type: ignore[arg-type]
        )

    def forward(
        self,
        hidden_states: Tensor,
        cu_seqlens: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        **kwargs: Any,
    ) -> Tensor:
        """``[rows, hidden]`` to the same.

        Args:
            cu_seqlens: int32 ``[segments + 1]``, where each segment begins, and the end.
            position_embeddings: cosines and sines ``[rows, head_dim]``.
        """
        rows = hidden_states.shape[0]
        q, k, v = self.qkv(hidden_states).view(rows, 3, self.heads, -1).unbind(1)
        cos, sin = (t.float().contiguous() for t in position_embeddings)
        attend = torch.ops.firstlight.attend_segments if self.native else attend_masked
        attended = attend(q, k, v, cos, sin, cu_seqlens.to(torch.int32), 0, self.scale)
        out: Tensor = self.proj(attended.reshape(rows, -1))
        return out


class CropAttention(nn.Module):
    """Attention over a batch of crops of one size, as CLIP's and SigLIP's towers have it."""

    def __init__(self, attention: Any, kit: Kit) -> None:
        super().__init__()
        self.heads = int(attention.num_heads)
        self.scale = float(attention.scale)
        self.qkv = kit.linear([attention.q_proj, attention.k_proj, attention.v_proj])
        self.out = kit.linear([_output(attention)])

    @staticmethod
    def takes(module: object, kit: Kit) -> bool:
        """As :meth:`SegmentAttention.takes`."""
        names = ("q_proj", "k_proj", "v_proj")
        parts = [getattr(module, name, None) for name in names]
        if not isinstance(module, nn.Module) or not plain_linears(*parts, _output(module)):
            return False
        known = hasattr(module, "num_heads") and hasattr(module, "scale")
        turned = "position_embeddings" in signature(module.forward).parameters
        if not known or turned or _has_norms(module):
            return False
        return _fits(kit, _output(module), int(module.num_heads))  # type: ignore[arg-type]

    def forward(
        self, hidden_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, None]:
        """``[crops, rows, hidden]`` to the same, and no weights."""
        crops, rows, _ = hidden_states.shape
        q, k, v = self.qkv(hidden_states).view(crops * rows, 3, self.heads, -1).unbind(1)
        attended: Tensor
        if attention_mask is None:
            attended = torch.ops.firstlight.attend_segments(
                q, k, v, None, None, None, rows, self.scale
            )
        else:  # e.g. patches of a crop that hold nothing
            q, k, v = (t.view(crops, rows, self.heads, -1).transpose(1, 2) for t in (q, k, v))
            attended = scaled_dot_product_attention(
                q, k, v, attn_mask=attention_mask, scale=self.scale
            ).transpose(1, 2)
        return self.out(attended.reshape(crops, rows, -1)), None


def attend_masked(
    q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor, bounds: Tensor, each: int,
    scale: float,
) -> Tensor:  # fmt: skip
    """``firstlight::attend_segments`` by torch's operations; nothing is read on the host.

    Rows behind the last segment see each other.
    """
    rows = torch.arange(q.shape[0], device=q.device)
    segment = torch.bucketize(rows, bounds[1:].long(), right=True)
    mask = segment[:, None] == segment[None, :]
    turned = (_turned(x, cos[:, None], sin[:, None]) for x in (q, k))
    q, k, v = (x.transpose(0, 1)[None] for x in (*turned, v))
    return scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)[0].transpose(0, 1)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """In float32, as the towers do it."""
    wide, half = x.float(), x.shape[-1] // 2
    other = torch.cat((-wide[..., half:], wide[..., :half]), dim=-1)
    return (wide * cos + other * sin).to(x.dtype)


def segment_parity(old: Any, new: nn.Module) -> str | None:
    """None if equal over three segments, else what differs."""
    rows, width = _BOUNDS[-1], old.proj.in_features
    x = random_like(old.qkv.weight, rows, width)
    angles = random_like(
        torch.empty(0, device=x.device), rows, width // int(old.num_heads) // 2
    ).repeat(1, 2)
    rest: dict[str, Any] = {
        "cu_seqlens": torch.tensor(_BOUNDS, dtype=torch.int32, device=x.device),
        "position_embeddings": (angles.cos(), angles.sin()),
    }
    return compare(lambda: old(x, **rest), lambda: new(x, **rest))


def crop_parity(old: Any, new: nn.Module) -> str | None:
    """None if equal over two crops, else what differs."""
    x = random_like(old.q_proj.weight, 2, _BOUNDS[-1], old.q_proj.in_features)
    return compare(lambda: old(x)[0], lambda: new(x)[0])


def _fits(kit: Kit, output: Any, heads: int) -> bool:
    """Whether the kernels that there are take the layers and heads of such an attention."""
    weight = output.weight
    if kit.kernels is None:
        return kit.segments
    return kit.takes(weight) and can_attend_segments(weight.dtype, output.in_features // heads)


def _has_norms(module: nn.Module) -> bool:
    """Whether queries or keys are normed in a way of their own."""
    return any(not isinstance(getattr(module, n, nn.Identity()), nn.Identity) for n in _NORMS)


def _output(module: object) -> Any:
    return next((getattr(module, n) for n in _OUTPUTS if hasattr(module, n)), None)
