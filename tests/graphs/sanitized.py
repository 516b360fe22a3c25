"""The decoder rig under the sanitizer, with attention over its own paged memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from firstlight.core.reason import Phase
from firstlight.graphs import (
    BodyInputs,
    BucketTable,
    Decider,
    Extent,
    Ownership,
    PaddingIsFree,
    TapeBackend,
    body_inputs,
    phase_extent,
    row_slots,
)
from firstlight.graphs.sanitizer import (
    Finding,
    FindingKind,
    GuardedArena,
    GuardedScratchArena,
    PagedMemory,
    Poison,
    Report,
    SanitizingRunner,
    TrackedRegistry,
)
from firstlight.graphs.slot import SlotSpec
from firstlight.graphs.slots import attention_slots, live_tokens_slot
from tests.graphs.decoder import CAPACITY, HIDDEN, Decoder, contract_of

PAGE = 4

Body = Callable[[BodyInputs], Tensor]


class SanitizedRig:
    """A decoder, its slots and a sanitizing runner; ``body`` is what tests mutate.

    The decoder masks by adding minus infinity over its whole memory, so that what it masks is
    multiplied by zero: poison is finite. Its token slot of position p is p + PAGE.
    """

    def __init__(
        self,
        *,
        body: Callable[[Decoder], Body] | None = None,
        width: int = HIDDEN,
        extra: tuple[SlotSpec, ...] = (),
        registry: type[TrackedRegistry] = TrackedRegistry,
        poison: Poison = Poison.FINITE,
    ) -> None:
        self.contract = contract_of(width)
        self.decoder = Decoder(self.contract.input_embeds_hidden_size, slots=64)
        self.decoder.sink = PAGE
        self.arena = GuardedArena()
        self.registry = registry(CAPACITY, self.arena)
        for spec in (
            *row_slots(self.contract, torch.float32), *attention_slots(16), live_tokens_slot(),
            *extra,
        ):  # fmt: skip
            self.registry.register(spec)
        self.registry.allocate()
        self.owned = Ownership()
        self.decoder.own(self.owned)
        buckets = BucketTable((8, 16))
        self.report = Report()
        pools = {
            f"pool {kind} {i}": tensor.view(-1, PAGE, *tensor.shape[1:])
            for i, layer in enumerate(self.decoder.stack)
            for kind, tensor in (("keys", layer.keys), ("values", layer.values))
        }
        self.backend = TapeBackend(GuardedScratchArena())
        self.runner = SanitizingRunner(
            Phase.PREFILL,
            registry=self.registry,
            buckets=buckets,
            backend=self.backend,
            body=self.decoder if body is None else body(self.decoder),
            decider=Decider(Phase.PREFILL, buckets, CAPACITY.requests, 64, PaddingIsFree()),
            inputs=self.inputs,
            owned=self.owned,
            report=self.report,
            memory=PagedMemory(pools, PAGE),
            arena=self.arena,
            poison=poison,
        )

    def inputs(self, rows: int) -> BodyInputs:
        """Views of the slots; write locations stand for the attention handle."""
        extent = phase_extent(Phase.PREFILL, rows, self.registry.capacity)
        return body_inputs(
            self.registry, self.contract, extent, lambda r, e: r.view("write_locations", e)
        )

    def values(self, n: int, start: int = 0) -> dict[str, Tensor | None]:
        """Metadata of one request whose pages are 1, 2, 3, ..."""
        positions = torch.arange(start, start + n)
        table = torch.zeros(1, 16, dtype=torch.int32)
        used = -(-(start + n) // PAGE)
        table[0, :used] = torch.arange(1, used + 1)
        return {
            "positions": positions[None],
            "write_locations": positions + PAGE,
            "page_table": table,
            "attention_rows": torch.tensor([[0, n, start + n, PAGE]]),
        }

    def serve(
        self,
        n: int = 5,
        *,
        start: int = 0,
        merge: Callable[[Tensor, Tensor], object] | None = None,
        change: Callable[[dict[str, Tensor | None]], None] | None = None,
    ) -> Tensor:
        """Capture if need be, then run ``n`` random rows as one request."""
        if not self.runner.graphs:
            self.runner.capture_all()
        live = Extent(n, 1)
        values = self.values(n, start)
        if change is not None:
            change(values)
        decision = self.runner.decide(live, start + n)
        self.runner.fill(values, live, decision)
        generator = torch.Generator().manual_seed(n)
        rows = torch.randn(n, self.contract.input_embeds_hidden_size, generator=generator)
        with torch.inference_mode():
            into = self.runner.embeds(n)
            if merge is None:
                into.copy_(rows)
            else:
                merge(into, rows)
            return self.runner.run(decision)

    def kinds(self) -> set[FindingKind]:
        """Kinds of the findings so far."""
        return {finding.kind for finding in self.report}

    def only(self, kind: FindingKind) -> Finding:
        """The finding of ``kind``, of which there must be one for the bucket of 8."""
        found = [f for f in self.report if f.kind is kind and f.bucket in (8, None)]
        assert len(found) == 1, str(self.report)
        return found[0]


def line_of(finding: Finding) -> str:
    """The source line that a finding points at, which must lie in a test."""
    path, _, number = finding.where.rpartition(":")
    assert Path(path).name.startswith("test_")
    with open(path) as file:
        return file.readlines()[int(number) - 1].strip()


def mutated(change: Callable[[Decoder, BodyInputs], Tensor]) -> SanitizedRig:
    """A rig whose body is ``change``."""

    def body(decoder: Decoder) -> Body:
        return lambda inputs: change(decoder, inputs)

    return SanitizedRig(body=body)
