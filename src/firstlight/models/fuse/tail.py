"""The last decoder layer, computed only where somebody reads its output.

Of a prefill only the last position of each request goes to the LM head. The last layer must store
keys and values of every row, but its queries, its output projection and its MLP are needed for
those positions alone: a prefill of L layers costs about L - 1 and a third. Nothing is approximated.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from firstlight.attention import AttentionLayer
from firstlight.models.adapter import Adapter
from firstlight.models.attention_hook import NAME
from firstlight.models.fuse.attention import FusedAttention, HeadNorm, Turn
from firstlight.models.fuse.kit import Kit
from firstlight.models.fuse.mlp import FusedMLP
from firstlight.models.fuse.parity import Recorder, compare
from firstlight.models.fuse.report import FuseReport
from firstlight.models.probe import random_rows


class TailAttention(nn.Module):
    """Attention whose queries are the last row of each request."""

    def __init__(self, attention: Any, layer: AttentionLayer, kit: Kit) -> None:
        super().__init__()
        a = attention
        self.layer = layer
        self.head_dim = int(a.head_dim)
        self.heads = a.q_proj.out_features // self.head_dim
        self.kv_heads = a.k_proj.out_features // self.head_dim
        self.q = kit.linear([a.q_proj])
        self.kv = kit.linear([a.k_proj, a.v_proj])
        self.out = kit.linear([a.o_proj])
        native = kit.takes(a.q_proj.weight)
        self.q_turn = Turn(HeadNorm.of(a, self.heads, 0), self.head_dim, native=native)
        self.k_turn = Turn(HeadNorm.of(a, 0, self.kv_heads), self.head_dim, native=native)

    def forward(
        self, hidden: Tensor, rotary: tuple[Tensor, Tensor], last: Tensor, context: Any
    ) -> Tensor:
        """``[T, hidden]`` to ``[B, hidden]``.

        Args:
            last: int64 ``[B]``, the row of each request's last position.
        """
        rows, keys = hidden.shape[0], self.kv_heads * self.head_dim
        kv = self.kv(hidden)
        q = self.q(hidden.index_select(0, last))
        there = tuple(t.index_select(1, last) for t in rotary)
        attended = context.attend_last(
            self.layer,
            self.q_turn(q, (there[0], there[1])),
            self.k_turn(kv[:, :keys], rotary),
            kv[:, keys:].view(rows, self.kv_heads, self.head_dim),
        )
        out: Tensor = self.out(attended.reshape(len(last), -1))
        return out


class TailLayer(nn.Module):
    """A pre-norm decoder layer that returns one row per request.

    In Gemma's layers attention and MLP have a norm behind them too; there the norm before the MLP
    is ``pre_feedforward_layernorm``, and ``post_attention_layernorm`` is what its name says.
    """

    def __init__(self, layer: Any, asked: AttentionLayer, kit: Kit) -> None:
        super().__init__()
        # What transformers' decoders read of a layer besides calling it, e.g. attention_type.
        for name, value in vars(layer).items():
            if not name.startswith("_") and name != "training":
                setattr(self, name, value)
        self.input_layernorm = layer.input_layernorm
        self.self_attn = TailAttention(layer.self_attn, asked, kit)
        self.post_attention_layernorm = layer.post_attention_layernorm
        self.inner: Any = getattr(layer, "pre_feedforward_layernorm", None)
        self.outer: Any = getattr(layer, "post_feedforward_layernorm", None)
        self.mlp = FusedMLP(layer.mlp, kit) if FusedMLP.takes(layer.mlp) else layer.mlp

    @staticmethod
    def takes(layer: object) -> bool:
        """Whether the parts are there; the parity check says whether they act alike."""
        names = ("input_layernorm", "post_attention_layernorm", "mlp")
        return all(
            isinstance(getattr(layer, n, None), nn.Module) for n in names
        ) and FusedAttention.takes(getattr(layer, "self_attn", None))

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor],
        attention_mask: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """``[1, T, hidden]`` to ``[1, B, hidden]``, the last row of each request."""
        context = kwargs[NAME]
        last = context.last_rows()
        normed = self.input_layernorm(hidden_states)[0]
        attended = self.self_attn(normed, position_embeddings, last, context)
        before, attended = hidden_states.index_select(1, last), attended[None]
        hidden: Tensor
        out: Tensor
        if self.inner is None or self.outer is None:
            hidden = before + attended
            out = hidden + self.mlp(self.post_attention_layernorm(hidden))
        else:
            hidden = before + self.post_attention_layernorm(attended)
            out = hidden + self.outer(self.mlp(self.inner(hidden)))
        return out


@torch.no_grad()
def fuse_tail(adapter: Adapter, report: FuseReport, kit: Kit) -> bool:
    """Swap the last layer, if the whole body then still gives the same rows.

    Call it before the other layers' modules are swapped: it takes the last layer's own.

    Returns:
        whether the body now returns ``[B, hidden_size]``, one row per request, instead of
        ``[T, hidden_size]``.
    """
    layers = getattr(adapter.decoder, "layers", None)
    if not layers or not TailLayer.takes(layers[-1]):
        return False
    old, body, last = layers[-1], adapter.body(), (1, 4)
    name = f"{type(old).__name__}, the last one"
    recorder = Recorder(last, adapter.device)
    inputs = random_rows(adapter, 5, recorder)
    want = body(inputs)[list(last)]
    try:
        layers[-1] = TailLayer(old, recorder.calls[-1], kit)
        found = compare(lambda: want, lambda: body(inputs))
    except Exception as error:  # e.g. a DeepStack add after the last layer wants all rows
        found = f"{type(error).__name__}: {error}"
    if found is None:
        report.count(name)
        return True
    layers[-1] = old
    report.left[name] = found
    return False
