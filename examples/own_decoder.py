"""Capture a decoder of your own with `firstlight.graphs` alone: plain torch, no transformers.

python examples/own_decoder.py

Seven steps: contract -> slots -> registry -> ownership -> tape -> runner with buckets -> replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from firstlight import graphs
from firstlight.contract import Plane, PlaneDType, resolve_contract
from firstlight.core.reason import Decision, Phase, Reason
from firstlight.graphs.proof import Placed, ProofLevel, Prover
from firstlight.graphs.sanitizer import Footprint, PagedMemory, Report, SanitizingRunner

HIDDEN, VISION, CONTEXT, ROWS = 32, 16, 48, 32


class Memory:
    """Keys and values of 99 tokens, and slot 0: the sink, where padding rows write.

    All members but `layers` and `free` are what a proof asks of it, a `ProofMemory`.
    """

    def __init__(self) -> None:
        self.layers = [torch.zeros(100, 2, HIDDEN) for _ in range(2)]
        self.free = list(range(1, 100))

    unit_tokens, sink, max_context = 1, 0, CONTEXT

    @property
    def free_units(self) -> int:
        return len(self.free)

    def state(self) -> Mapping[str, Tensor]:
        return {f"layer {i}": layer for i, layer in enumerate(self.layers)}

    def lend(self, n: int) -> Sequence[int]:
        lent, self.free = self.free[:n], self.free[n:]
        return lent

    def give_back(self, units: Sequence[int]) -> None:
        self.free = sorted([*self.free, *units])

    def values(self, requests: Sequence[Placed]) -> Mapping[str, Tensor]:
        """What a batch says of memory: where each row is stored, and what it may look at."""
        table = torch.zeros(len(requests), CONTEXT, dtype=torch.int64)
        for row, request in zip(table, requests, strict=True):
            row[: len(request.units)] = torch.tensor(request.units)
        new = [row[r.start : r.end] for row, r in zip(table, requests, strict=True)]
        lengths = torch.tensor([len(r) for r in requests])
        return {"write_to": torch.cat(new), "context": table.repeat_interleave(lengths, dim=0)}


class Decoder(nn.Module):
    """Two layers of attention. A row is wider than `hidden_size`, and one input lies beside it."""

    # Step 1, the contract: what one token brings. Here 32 + 16 columns, and one integer.
    input_segments = (("tokens", HIDDEN), ("vision", VISION))
    input_planes = (Plane("kind", dtype=PlaneDType.INT64, index=True),)

    def __init__(self, memory: Memory) -> None:
        super().__init__()
        self.memory = memory
        self.look, self.kind = nn.Linear(VISION, HIDDEN), nn.Embedding(2, HIDDEN)
        self.place = nn.Embedding(CONTEXT, HIDDEN)
        self.qkv = nn.ModuleList(nn.Linear(HIDDEN, 3 * HIDDEN) for _ in memory.layers)
        self.mix = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in memory.layers)

    def forward(self, inputs: graphs.BodyInputs) -> Tensor:
        """Rows `[T, 48]` to hidden states `[T, 32]`: fixed shapes, no value read on the host."""
        write_to, context = cast(list[Tensor], inputs.attention)
        position = inputs.positions[0]
        tokens, vision = inputs.embeds[:, :HIDDEN], inputs.embeds[:, HIDDEN:]
        x = tokens + self.look(vision) + self.kind(inputs.planes["kind"]) + self.place(position)
        later = torch.arange(CONTEXT) > position[:, None]
        for qkv, mix, kv in zip(self.qkv, self.mix, self.memory.layers, strict=True):
            q, k, v = qkv(layer_norm(x, [HIDDEN])).chunk(3, dim=1)
            kv.index_copy_(0, write_to, torch.stack([k, v], dim=1))
            keys, values = kv[context].unbind(2)  # [T, CONTEXT, HIDDEN] each
            scores = (keys * q[:, None]).sum(2).masked_fill(later, float("-inf"))
            # A weight of 0 does not silence a NaN, so what is not seen becomes 0 as well.
            seen = values.masked_fill(later[..., None], 0)
            x = x + mix((scores.softmax(1)[..., None] * seen).sum(1))
        return layer_norm(x, [HIDDEN])


def build(
    store: Memory, runner_class: type[graphs.GraphRunner] = graphs.GraphRunner, **more: Any
) -> graphs.GraphRunner:
    """A runner over a decoder with random weights."""
    torch.manual_seed(0)
    decoder = Decoder(store).requires_grad_(False)
    contract = resolve_contract([decoder], HIDDEN)
    # Steps 2 and 3, slots and registry: one static buffer per input, allocated once. Rows that
    # pad a batch up to its bucket are neutral; in an index slot that is 0, the sink.
    registry = graphs.SlotRegistry(graphs.Extent(tokens=ROWS, requests=4), graphs.Arena())
    T, tokens, index = graphs.Dim.T, graphs.Axis.TOKENS, graphs.Meaning.INDEX
    for spec in (
        *graphs.row_slots(contract, torch.float32),  # input_embeds, positions, kind
        graphs.SlotSpec("write_to", (T,), torch.int64, tokens, meaning=index),
        graphs.SlotSpec("context", (T, CONTEXT), torch.int64, tokens, meaning=index),
    ):
        registry.register(spec)
    registry.allocate()
    # Step 4, ownership: who keeps alive what a graph touches. The runner adds the slots.
    owned = graphs.Ownership()
    for name, layer in store.state().items():
        owned.add(layer, f"memory of {name}")
    owned.add_module(decoder)

    def inputs(rows: int) -> graphs.BodyInputs:
        """Views of the first rows of the slots: the same addresses at capture and at replay."""
        extent = graphs.phase_extent(Phase.PREFILL, rows, registry.capacity)
        names = ("write_to", "context")
        return graphs.body_inputs(
            registry, contract, extent, lambda r, e: [r.view(n, e) for n in names]
        )

    # Steps 5 and 6, the tape and the runner: each bucket is captured, proven, and only then used.
    buckets = graphs.BucketTable((8, 16, ROWS))
    return runner_class(
        Phase.PREFILL,
        registry=registry,
        buckets=buckets,
        backend=graphs.TapeBackend(),
        body=decoder,
        decider=graphs.Decider(Phase.PREFILL, buckets, 4, CONTEXT, graphs.PaddingIsFree()),
        inputs=inputs,
        owned=owned,
        prover=Prover(contract, store, level=ProofLevel.FULL),
        **more,
    )


def serve(runner: graphs.GraphRunner, memory: Memory, *batch: Placed) -> tuple[Decision, Tensor]:
    """Step 7: decide, fill the slots, write the rows, replay; hidden states `[n, 32]`."""
    n = sum(len(request) for request in batch)
    generator = torch.Generator().manual_seed(n)
    decision = runner.decide(graphs.Extent(n, len(batch)), max(request.end for request in batch))
    values = {
        "positions": torch.cat([torch.arange(r.start, r.end) for r in batch])[None],
        "kind": torch.randint(0, 2, (n,), generator=generator),
        **memory.values(batch),
    }
    runner.fill(values, graphs.Extent(n, len(batch)), decision)
    runner.embeds(n).copy_(torch.randn(n, HIDDEN + VISION, generator=generator))
    if isinstance(runner, SanitizingRunner):  # what the batch may touch, from another source
        reads = torch.tensor([slot for r in batch for slot in r.units[: r.end]])
        runner.expect(Footprint(reads, values["write_to"]))
    return decision, runner.run(decision).clone()


def main() -> None:
    """Print what was captured and proven, that replay equals eager, and what was found."""
    memory = Memory()
    runner = build(memory)
    for bucket in runner.capture_all().buckets:
        assert bucket.proof is not None
        print(f"bucket {bucket.bucket:3}: {bucket.ops} ops, proof: {bucket.proof.summary}")
    for slot in runner.registry.describe():
        print(f"slot {slot.name:12} {slot.dtype:8} {list(slot.shape)}, padding: {slot.policy}")

    a, b = memory.lend(20), memory.lend(10)
    batches = [
        [Placed(tuple(a), 0, 12)],  # a prompt of 12 tokens
        [Placed(tuple(b), 0, 7), Placed(tuple(a), 12, 13)],  # another; the first one goes on
    ]
    for batch in batches:
        decision, hidden = serve(runner, memory, *batch)
        # The same body on the same slots, without the graph; equal to the last bit.
        eager = runner.run(Decision(Phase.PREFILL, None, decision.padded, Reason.GRAPHS_OFF))
        equal = torch.equal(hidden, eager[: len(hidden)])
        print(f"{decision.detail}; replay equals eager: {equal}")

    report, memory = Report(), Memory()
    pools = {f"memory of {name}": layer[:, None] for name, layer in memory.state().items()}
    checked = build(memory, SanitizingRunner, report=report, memory=PagedMemory(pools, page_size=1))
    checked.capture_all()
    for batch in batches:
        serve(checked, memory, *batch)
    print(f"sanitizer: {len(report)} findings", *report, sep="\n")


if __name__ == "__main__":
    main()
