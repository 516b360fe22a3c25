"""A small healthy decoder over slots and pages; each step is a method that a fault may replace.

Rows of three segments, two planes, positions of rank three, several requests in pages of four
tokens, a live boundary, and a state per request that is written after each step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from firstlight.graphs import BodyInputs
from firstlight.graphs.proof import Placed
from tests.paged_decoder import (
    EXTRA,
    HEADS,
    HIDDEN,
    MAX_CONTEXT,
    PAGE,
    PAGES,
    FreePages,
)


@dataclass(frozen=True)
class Metadata:
    """The body's handle: views of the metadata slots."""

    write_locations: Tensor
    page_table: Tensor
    attention_rows: Tensor
    live: Tensor
    track_rows: Tensor


class Decoder(nn.Module):
    """Two layers of attention over pages, each followed by one more segment of the row."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.types = nn.Embedding(2, HIDDEN)
        self.aux = nn.Linear(4, HIDDEN, bias=False)
        self.qkv = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(2))
        self.extra = nn.ModuleList(nn.Linear(EXTRA, HIDDEN, bias=False) for _ in range(2))
        self.norm = nn.LayerNorm(HIDDEN)
        self.freq = torch.tensor([1.0, 0.3, 0.1])
        shape = (PAGES, PAGE, HEADS, HIDDEN // HEADS)
        self.keys = [torch.zeros(shape) for _ in range(2)]
        self.values = [torch.zeros(shape) for _ in range(2)]
        self.tracks = torch.zeros(PAGES, HIDDEN)
        self.requires_grad_(False)

    def forward(self, inputs: BodyInputs) -> Tensor:
        """Hidden states ``[T, HIDDEN]``."""
        meta = cast(Metadata, inputs.attention)
        x = self.enter(inputs)
        turn = self.turn(inputs.positions)
        for layer in range(2):
            x = x + self.attend(layer, x, turn, meta)
            x = x + self.stack(layer, inputs.embeds)
        x = self.leave(x, meta)
        self.track(x, meta)
        return cast(Tensor, self.norm(x))

    def enter(self, inputs: BodyInputs) -> Tensor:
        """The stream before the first layer."""
        x = inputs.embeds[:, :HIDDEN] + self.types(inputs.planes["types"])
        return cast(Tensor, x + self.aux(inputs.planes["layer_embeds"]))

    def turn(self, positions: Tensor) -> Tensor:
        """An angle per row."""
        return (positions.float() * self.freq[:, None]).sum(0)[:, None]

    def stack(self, layer: int, rows: Tensor) -> Tensor:
        """What the segment of this layer adds to the stream."""
        start = HIDDEN + layer * EXTRA
        return cast(Tensor, self.extra[layer](rows[:, start : start + EXTRA]))

    def attend(self, layer: int, x: Tensor, turn: Tensor, meta: Metadata) -> Tensor:
        """Store keys and values, gather each row's pages, attend up to its own position."""
        q, k, v = self.qkv[layer](self.norm(x)).view(x.shape[0], 3, HEADS, -1).unbind(1)
        k = k * turn.cos()[:, None] + turn.sin()[:, None]
        keys, values = self.keys[layer].flatten(0, 1), self.values[layer].flatten(0, 1)
        keys[meta.write_locations] = k
        values[meta.write_locations] = v
        at, seen = self.context(meta, x.shape[0])
        scores = torch.einsum("thd,tshd->ths", q, keys[at])
        weights = scores.masked_fill(~seen[:, None], -1e9).softmax(-1)
        mixed = torch.einsum("ths,tshd->thd", weights, self.seen_values(values[at], seen))
        return cast(Tensor, self.out[layer](mixed.reshape(x.shape[0], -1)))

    def context(self, meta: Metadata, rows: int) -> tuple[Tensor, Tensor]:
        """Token slots ``[T, MAX_CONTEXT]`` of each row's request, and which of them it sees."""
        first, n, context = meta.attention_rows[:, :3].unbind(1)
        row = torch.arange(rows)[:, None]
        mine = (first <= row) & (row < first + n)
        request = mine.long().argmax(1)
        at = meta.page_table[request].long()[:, :, None] * PAGE + torch.arange(PAGE)
        reach = (context - n - first)[request][:, None] + row  # the row's own position
        seen = (torch.arange(MAX_CONTEXT) <= reach) & mine.any(1, keepdim=True)
        return at.flatten(1), seen

    def seen_values(self, values: Tensor, seen: Tensor) -> Tensor:
        """A weight of 0 does not silence a NaN, so values that are not seen become 0 as well."""
        return values.masked_fill(~seen[:, :, None, None], 0)

    def leave(self, x: Tensor, meta: Metadata) -> Tensor:
        """Rows beyond the live boundary are defined: zero."""
        return x.masked_fill(torch.arange(x.shape[0])[:, None] >= meta.live, 0)

    def track(self, x: Tensor, meta: Metadata) -> None:
        """Keep each request's last row; rows of no request go to the sink."""
        last = (meta.attention_rows[:, 0] + meta.attention_rows[:, 1] - 1).clamp(min=0)
        self.tracks[meta.track_rows] = x[last]


class Pages(FreePages):
    """The decoder's memory. Serves batches, and proofs as a ProofMemory."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self._decoder = decoder

    def state(self) -> Mapping[str, Tensor]:
        """Keys and values ``[pages, PAGE, HEADS, d]`` of both layers, and the tracks."""
        return {**self.pools(), "tracks": self._decoder.tracks}

    def pools(self) -> dict[str, Tensor]:
        """Keys and values alone."""
        d = self._decoder
        return {
            f"pool {kind} {layer}": tensor
            for kind, tensors in (("keys", d.keys), ("values", d.values))
            for layer, tensor in enumerate(tensors)
        }

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        """Write locations, page table, facts of each request, and where its state is kept."""
        tracks = torch.tensor([r.units[(r.end - 1) // PAGE] for r in requests])
        return super().values(requests) | {"track_rows": tracks}
