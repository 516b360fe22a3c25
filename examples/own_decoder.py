"""Capture a decoder of your own: ``firstlight.graphs`` alone, without transformers or an engine.

python examples/own_decoder.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firstlight.contract import InputContract, resolve_contract
from firstlight.core.reason import Phase
from firstlight.graphs import (
    Arena,
    BodyInputs,
    BucketTable,
    Decider,
    Extent,
    GraphRunner,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
    TapeBackend,
    body_inputs,
    row_slots,
)

HIDDEN = 32


class Decoder(nn.Module):
    """Three layers whose input is twice as wide as their stream, and that say so."""

    input_segments = (("tokens", HIDDEN), ("extra", HIDDEN))

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(3))

    def forward(self, inputs: BodyInputs) -> Tensor:
        """Rows ``[T, 64]`` to hidden states ``[T, 32]``."""
        hidden, extra = inputs.embeds[:, :HIDDEN], inputs.embeds[:, HIDDEN:]
        for index, layer in enumerate(self.layers):
            hidden = hidden + torch.tanh(layer(hidden))
            if index == 0:
                hidden = hidden + extra
        return hidden


def build(decoder: Decoder, contract: InputContract, sizes: tuple[int, ...]) -> GraphRunner:
    """A runner for ``decoder`` with a graph of each size."""
    capacity = Extent(tokens=sizes[-1], requests=1)
    slots = SlotRegistry(capacity, Arena())
    for spec in row_slots(contract, torch.float32):
        slots.register(spec)
    slots.allocate()
    owned = Ownership()
    owned.add_module(decoder)
    buckets = BucketTable(sizes)
    return GraphRunner(
        Phase.PREFILL,
        registry=slots,
        buckets=buckets,
        backend=TapeBackend(),
        body=decoder,
        decider=Decider(
            Phase.PREFILL,
            buckets,
            max_requests=1,
            max_context=capacity.tokens,
            cost=PaddingIsFree(),
        ),
        inputs=lambda rows: body_inputs(slots, contract, Extent(rows, 1)),
        owned=owned,
    )


def main() -> None:
    """Capture, replay 20 rows from the graph of 32, and compare with calling the decoder."""
    torch.manual_seed(0)
    decoder = Decoder().eval().requires_grad_(False)
    contract = resolve_contract([decoder], HIDDEN)
    runner = build(decoder, contract, (16, 32, 64))
    report = runner.capture_all()
    print(f"captured {[bucket.bucket for bucket in report.buckets]}")

    rows = torch.randn(20, contract.input_embeds_hidden_size)
    positions = torch.arange(20)[None]
    live = Extent(tokens=20, requests=1)
    decision = runner.decide(live, max_context=20)
    runner.fill({"positions": positions}, live, decision)
    runner.embeds(20).copy_(rows)
    replayed = runner.run(decision)
    print(f"{decision.mode}: {decision.detail}")

    called = decoder(BodyInputs(rows, positions))
    print(f"largest difference from calling it: {(replayed - called).abs().max():.1e}")


if __name__ == "__main__":
    main()
