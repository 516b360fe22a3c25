"""A small decoder over static buffers, for what graphs must hold: rope, attention, KV writes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from firstlight.contract import InputContract, resolve_contract
from firstlight.core.reason import Phase
from firstlight.graphs import (
    Arena,
    BodyInputs,
    BucketTable,
    CaptureBackend,
    Decider,
    Extent,
    GraphRunner,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
    TapeBackend,
    body_inputs,
    phase_extent,
    row_slots,
)
from firstlight.graphs.slots import attention_slots, live_tokens_slot

HIDDEN = 32
CAPACITY = Extent(24, 3)


class Layer(nn.Module):
    """Attention over a static KV memory, written in place, then a gated MLP."""

    def __init__(self, heads: int, slots: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False, dtype=dtype)
        self.out = nn.Linear(HIDDEN, HIDDEN, dtype=dtype)
        self.up = nn.Linear(HIDDEN, 2 * HIDDEN, dtype=dtype)
        self.down = nn.Linear(HIDDEN, HIDDEN, dtype=dtype)
        self.norm = nn.LayerNorm(HIDDEN, dtype=dtype)
        nn.init.normal_(self.norm.bias)  # also rows of zeros have keys and values then
        self.keys = torch.zeros(slots, heads, HIDDEN // heads, dtype=dtype)
        self.values = torch.zeros(slots, heads, HIDDEN // heads, dtype=dtype)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, at: Tensor, seen: Tensor) -> Tensor:
        rows = x.shape[0]
        q, k, v = self.qkv(self.norm(x)).view(rows, 3, self.heads, -1).unbind(1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        self.keys[at] = k
        self.values[at] = v
        scores = torch.einsum("thd,shd->hts", q, self.keys) * q.shape[-1] ** -0.5
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
        mixed = torch.einsum("hts,shd->thd", weights, self.values)
        x = x + self.out(mixed.reshape(rows, -1))
        gate, up = self.up(x).chunk(2, dim=-1)
        result: Tensor = x + self.down(functional.silu(gate) * up)
        return result


class Decoder(nn.Module):
    """Rows ``[T, width]``: hidden columns first, the rest is added through a projection."""

    def __init__(
        self, width: int = HIDDEN, *, layers: int = 2, slots: int = 65,
        dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        super().__init__()
        torch.manual_seed(7)
        self.calls = 0
        self.slots = slots
        self.sink = 1  # slots
        self.stack = tuple(Layer(4, slots, dtype) for _ in range(layers))
        self.layers = nn.ModuleList(self.stack)
        extra = width - HIDDEN
        self.extra = nn.Linear(extra, HIDDEN, bias=False, dtype=dtype) if extra else None
        self.inv_freq = 1e4 ** (-torch.arange(0, 4, dtype=torch.float32) / 4)
        self.requires_grad_(False)

    def forward(self, inputs: BodyInputs) -> Tensor:
        """Hidden states ``[T, HIDDEN]``; ``inputs.attention`` is the write locations."""
        self.calls += 1
        x = inputs.embeds[:, :HIDDEN]
        if self.extra is not None:
            x = x + self.extra(inputs.embeds[:, HIDDEN:])
        angles = inputs.positions[0][:, None].float() * self.inv_freq
        cos, sin = (t.repeat(1, 2)[:, None].to(x.dtype) for t in (angles.cos(), angles.sin()))
        at = inputs.attention
        assert isinstance(at, Tensor)
        # Position p lies in slot p + 1, behind the sink, which is never seen.
        slots = torch.arange(self.slots)[None]
        seen = (slots >= self.sink) & (slots <= inputs.positions[0][:, None] + self.sink)
        for layer in self.stack:
            x = layer(x, cos, sin, at, seen)
        return x

    def own(self, owned: Ownership) -> None:
        """Declare weights and KV memory."""
        for i, layer in enumerate(self.stack):
            owned.add(layer.keys, f"pool keys {i}")
            owned.add(layer.values, f"pool values {i}")
        owned.add_module(self)

    def clear(self) -> None:
        """Empty the KV memory."""
        for layer in self.stack:
            layer.keys.zero_()
            layer.values.zero_()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of ``[T, heads, D]``."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-b, a), dim=-1) * sin


def contract_of(width: int) -> InputContract:
    """A declared width; one segment beside the tokens if it is wider than the stream."""

    class Declarer:
        input_segments = (
            [("tokens", HIDDEN), ("extra", width - HIDDEN)] if width > HIDDEN
            else [("tokens", HIDDEN)]
        )  # fmt: skip

    return resolve_contract([Declarer], HIDDEN)


class Rig:
    """A decoder with its slots and runner."""

    def __init__(
        self,
        width: int = HIDDEN,
        *,
        buckets: tuple[int, ...] = (4, 8, 16),
        capacity: Extent = CAPACITY,
        dtype: torch.dtype = torch.float32,
        backend: CaptureBackend | None = None,
        phase: Phase = Phase.PREFILL,
    ) -> None:
        self.contract = contract_of(width)
        self.decoder = Decoder(self.contract.input_embeds_hidden_size, dtype=dtype)
        self.registry = SlotRegistry(capacity, Arena())
        for spec in (*row_slots(self.contract, dtype), *attention_slots(4), live_tokens_slot()):
            self.registry.register(spec)
        self.registry.allocate()
        self.owned = Ownership()
        self.decoder.own(self.owned)
        self.buckets = BucketTable(buckets)
        self.decider = Decider(phase, self.buckets, capacity.requests, 64, PaddingIsFree())
        self.runner = GraphRunner(
            phase, registry=self.registry, buckets=self.buckets,
            backend=TapeBackend() if backend is None else backend, body=self.decoder,
            decider=self.decider, inputs=self.inputs, owned=self.owned,
        )  # fmt: skip

    def inputs(self, rows: int) -> BodyInputs:
        """Views of the slots; write locations stand for the attention handle."""
        extent = phase_extent(self.runner.phase, rows, self.registry.capacity)
        return body_inputs(
            self.registry, self.contract, extent, lambda r, e: r.view("write_locations", e)
        )

    def fill(self, rows: Tensor, *, start: int = 0, eager: bool = False) -> Tensor:
        """Run ``rows`` ``[n, width]`` at positions from ``start`` on; hidden states."""
        n = rows.shape[0]
        live = Extent(n, n if self.runner.phase is Phase.DECODE else 1)
        decision = self.runner.decide(live, start + n)
        if eager:
            decision = Decider(
                self.runner.phase, self.buckets, 1, 1, PaddingIsFree(), enabled=False
            ).decide(live, start + n)
        positions = torch.arange(start, start + n)
        values: dict[str, Tensor | None] = {
            "positions": positions[None],
            "write_locations": positions + 1,
            "page_table": torch.zeros(live.requests, 4, dtype=torch.int32),
            "attention_rows": torch.zeros(live.requests, 4, dtype=torch.int64),
        }
        self.runner.fill(values, live, decision)
        self.registry.write("input_embeds", rows, 0)
        return self.runner.run(decision)

    def rows(self, n: int, seed: int = 0) -> Tensor:
        """Random rows ``[n, width]``."""
        generator = torch.Generator().manual_seed(seed)
        values = torch.randn(n, self.contract.input_embeds_hidden_size, generator=generator)
        return values.to(self.registry.buffer("input_embeds").dtype)
