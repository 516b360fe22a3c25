"""A small paged decoder over slots, with everything that a proof varies, and its runner.

Rows of three segments, two planes, positions of rank three, several requests whose keys and values
lie in pages. Only ``firstlight.graphs`` and torch: somebody with a decoder of their own writes so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from firstlight.core.reason import Phase
from firstlight.graphs import (
    Arena,
    BodyInputs,
    BucketTable,
    Decider,
    Extent,
    Graph,
    GraphRunner,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
    SlotSpec,
    TapeBackend,
    body_inputs,
    body_slots,
    phase_extent,
)
from firstlight.graphs.proof import ProofLevel, Prover, Tolerance
from tests.paged_decoder import (
    CONTRACT,
    EXTRA,
    HEADS,
    HIDDEN,
    MAX_CONTEXT,
    MAX_PAGES,
    PAGE,
    PAGES,
    FreePages,
)

CAPACITY = Extent(28, 3)


@dataclass(frozen=True)
class Metadata:
    """The body's handle: views of the attention slots."""

    write_locations: Tensor
    page_table: Tensor
    attention_rows: Tensor


class PagedDecoder(nn.Module):
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
        shape = (2, PAGES, PAGE, HEADS, HIDDEN // HEADS)
        self.pools = list(torch.zeros(2, *shape).unbind(0))
        self.requires_grad_(False)

    def forward(self, inputs: BodyInputs) -> Tensor:
        """Hidden states ``[T, HIDDEN]``."""
        x = inputs.embeds[:, :HIDDEN] + self.types(inputs.planes["types"])
        x = x + self.aux(inputs.planes["layer_embeds"])
        turn = (inputs.positions.float() * self.freq[:, None]).sum(0)[:, None]
        meta = inputs.attention
        for i in range(2):
            x = x + self.attend(i, x, turn, meta)
            x = x + self.stack(i, inputs.embeds)
        return self.norm(x)  # type: ignore[no-any-return]

    def stack(self, layer: int, rows: Tensor) -> Tensor:
        """What the segment of this layer adds to the stream."""
        start = HIDDEN + layer * EXTRA
        added: Tensor = self.extra[layer](rows[:, start : start + EXTRA])
        return added

    def attend(self, layer: int, x: Tensor, turn: Tensor, meta: Any) -> Tensor:
        """Store keys and values, gather each row's pages, attend up to its own position."""
        rows = x.shape[0]
        q, k, v = self.qkv[layer](self.norm(x)).view(rows, 3, HEADS, -1).unbind(1)
        k = k * turn.cos()[:, None] + turn.sin()[:, None]
        keys, values = (pool[layer].view(PAGES * PAGE, HEADS, -1) for pool in self.pools)
        keys.index_copy_(0, meta.write_locations, k)
        values.index_copy_(0, meta.write_locations, v)
        first, n, context = meta.attention_rows[:, :3].unbind(1)
        row = torch.arange(rows)[:, None]
        mine = (first <= row) & (row < first + n)
        request = mine.long().argmax(1)
        slots = meta.page_table[request].long()[:, :, None] * PAGE + torch.arange(PAGE)
        slots = slots.flatten(1)
        reach = (context - n - first)[request][:, None] + row  # the row's own position
        seen = (torch.arange(MAX_CONTEXT) <= reach) & mine.any(1, keepdim=True)
        scores = torch.einsum("thd,tshd->ths", q, keys[slots])
        weights = scores.masked_fill(~seen[:, None], -1e9).softmax(-1)
        mixed = torch.einsum("ths,tshd->thd", weights, values[slots])
        result: Tensor = self.out[layer](mixed.reshape(rows, -1)) * mine.any(1, keepdim=True)
        return result


class Pages(FreePages):
    """The decoder's memory."""

    def __init__(self, decoder: PagedDecoder) -> None:
        super().__init__()
        self._decoder = decoder

    def state(self) -> Mapping[str, Tensor]:
        """Keys and values ``[pages, PAGE, HEADS, d]`` of both layers."""
        keys, values = self._decoder.pools
        return {"keys 0": keys[0], "values 0": values[0], "keys 1": keys[1], "values 1": values[1]}


class FaultyTape:
    """The tape, with ``fault`` around each replay."""

    name = "tape"

    def __init__(self, fault: Callable[[Graph], Tensor]) -> None:
        self._tape, self._fault = TapeBackend(), fault

    def capture(self, fn: Callable[[], Tensor], *, owned: Ownership, label: str) -> Graph:
        """A captured graph whose replay goes through the fault."""
        graph = self._tape.capture(fn, owned=owned, label=label)
        fault = self._fault

        class Faulty:
            bytes, seconds, pieces = graph.bytes, graph.seconds, graph.pieces

            def replay(self) -> Tensor:
                return fault(graph)

        return Faulty()


class Rig:
    """The decoder with slots, memory, runner and prover; every part can be given instead."""

    def __init__(
        self,
        decoder: PagedDecoder | None = None,
        *,
        level: ProofLevel = ProofLevel.FULL,
        buckets: tuple[int, ...] = (4, 12, 24),
        phase: Phase = Phase.PREFILL,
        capacity: Extent = CAPACITY,
        memory: Callable[[PagedDecoder], Pages] = Pages,
        backend: Any = None,
        specs: Callable[[list[SlotSpec]], None] = lambda specs: None,
        tolerance: Tolerance | None = None,
    ) -> None:
        self.decoder = PagedDecoder() if decoder is None else decoder
        self.memory = memory(self.decoder)
        self.registry = SlotRegistry(capacity, Arena())
        declared = body_slots(CONTRACT, torch.float32, max_pages=MAX_PAGES)
        specs(declared)
        for spec in declared:
            self.registry.register(spec)
        self.registry.allocate()
        self.owned = Ownership()
        for name, tensor in self.memory.state().items():
            self.owned.add(tensor, f"pool {name}")
        self.owned.add_module(self.decoder)
        self.buckets = BucketTable(buckets)
        self.prover = Prover(CONTRACT, self.memory, level=level, tolerance=tolerance)
        self.runner = GraphRunner(
            phase, registry=self.registry, buckets=self.buckets,
            backend=TapeBackend() if backend is None else backend,
            body=lambda inputs: self.decoder(inputs),
            decider=Decider(phase, self.buckets, capacity.requests, MAX_CONTEXT, PaddingIsFree()),
            inputs=self.inputs, owned=self.owned, prover=self.prover,
        )  # fmt: skip

    def inputs(self, rows: int) -> BodyInputs:
        """Views of the slots."""
        extent = phase_extent(self.runner.phase, rows, self.registry.capacity)
        return body_inputs(self.registry, CONTRACT, extent, self.attention)

    def attention(self, slots: SlotRegistry, extent: Extent) -> Metadata:
        """Views of the attention slots."""
        names = ("write_locations", "page_table", "attention_rows")
        return Metadata(*(slots.view(name, extent) for name in names))

    def findings(self) -> list[str]:
        """Capture and prove everything; every finding in words."""
        report = self.runner.capture_all()
        assert not report.failures, report.failures
        return [str(f) for b in report.buckets if b.proof is not None for f in b.proof.findings]

    def unread(self) -> list[str]:
        """Capture and prove everything; declared inputs without effect."""
        proof = self.runner.capture_all().proof
        return [] if proof is None else [finding.where for finding in proof.unread]
