"""Decoder bodies over transformers' layers: rows in, hidden states out.

A body takes anything shaped like :class:`RowInputs` (``firstlight.graphs`` defines the class that
the runners pass). It does no lookup, no merge and no LM head, and holds no state between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from firstlight.contract import Segment
from firstlight.models.attention_hook import NAME


class RowInputs(Protocol):
    """What one call of a body brings; all tensors have T rows, padding included."""

    @property
    def embeds(self) -> Tensor:
        """``[T, input_embeds_hidden_size]``, merged rows in the weights' dtype."""
        ...

    @property
    def positions(self) -> Tensor:
        """``[position_rank, T]`` int64."""
        ...

    @property
    def planes(self) -> Mapping[str, Tensor]:
        """Per-token inputs beside the row, ``[T, ...]`` each."""
        ...

    @property
    def attention(self) -> Any:
        """An :class:`~firstlight.models.attention_hook.AttentionContext`."""
        ...


Body = Callable[[RowInputs], Tensor]


def position_ids(positions: Tensor) -> Tensor:
    """``[R, T]`` as transformers wants it: ``[1, T]``, or ``[R, 1, T]`` for M-RoPE."""
    return positions if positions.shape[0] == 1 else positions[:, None]


class DecoderBody:
    """The bare decoder as it is; planes are passed as keyword arguments of their names."""

    def __init__(self, decoder: nn.Module) -> None:
        self.decoder = decoder

    def __call__(self, inputs: RowInputs) -> Tensor:
        """``[T, hidden_size]``, after the decoder's final norm."""
        context = {NAME: inputs.attention}
        out = self.decoder(
            inputs_embeds=inputs.embeds[None],
            position_ids=position_ids(inputs.positions),
            use_cache=False,
            **{name: plane[None] for name, plane in inputs.planes.items()},
            **context,
        )
        hidden: Tensor = out.last_hidden_state[0]
        return hidden


class DeepStackBody:
    """Decoder layers with one segment of the row added to the stream after each of the first k.

    The segments are zero outside media rows, so the add is dense: no mask, no boolean index, the
    same operations for every batch.
    """

    def __init__(self, decoder: Any, tokens: Segment, stacks: Sequence[Segment]) -> None:
        self.decoder = decoder
        self.tokens = tokens
        self.stacks = tuple(stacks)

    def __call__(self, inputs: RowInputs) -> Tensor:
        """``[T, hidden_size]``, after the decoder's final norm."""
        rows = inputs.embeds
        hidden = rows[None, :, self.tokens.start : self.tokens.end]
        rotary = self.decoder.rotary_emb(hidden, position_ids(inputs.positions))
        context = {NAME: inputs.attention}
        for index, layer in enumerate(self.decoder.layers):
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=None, **context)
            if index < len(self.stacks):
                stack = self.stacks[index]
                hidden = hidden + rows[None, :, stack.start : stack.end]
        normed: Tensor = self.decoder.norm(hidden)[0]
        return normed
