"""The small decoder on ``firstlight.graphs`` alone; every part can be replaced by a faulty one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from firstlight.contract import resolve_contract
from firstlight.core.reason import Phase
from firstlight.errors import CaptureError, ContractError, SlotError
from firstlight.graphs import (
    Arena,
    Axis,
    BodyInputs,
    BucketTable,
    Decider,
    Dim,
    Extent,
    GraphRunner,
    Meaning,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
    SlotSpec,
    TapeBackend,
    TapeGraph,
    body_inputs,
    body_slots,
    phase_extent,
)
from firstlight.graphs.fill import FillPlan
from firstlight.graphs.proof import Placed, ProofLevel, Prover
from firstlight.graphs.sanitizer import (
    Footprint,
    GuardedArena,
    GuardedScratchArena,
    PagedMemory,
    Report,
    SanitizingRunner,
    TrackedRegistry,
    token_slots,
)
from tests.faults.decoder import Decoder, Metadata, Pages
from tests.faults.fault import Caught, Level, collected
from tests.paged_decoder import CONTRACT, EXTRA, HIDDEN, MAX_CONTEXT, MAX_PAGES, PAGE, Declarer

CAPACITY = Extent(20, 3)
WIDTH = HIDDEN + 2 * EXTRA
Merge = Callable[[Tensor, Tensor, bool], None]
Replay = Callable[["GraphRig", TapeGraph], Tensor]


def merge(into: Tensor, rows: Tensor, media: bool) -> None:
    """Write each row once; text rows fill the first segment, the others are neutral already."""
    columns = WIDTH if media else HIDDEN
    into[:, :columns].copy_(rows[:, :columns])


@dataclass
class Parts:
    """What a rig is built of; a mutation replaces one of them.

    Attributes:
        plan: what a fill does, changed.
        replay: in place of a graph's replay.
        after_capture: something that happens to a captured runner before it serves.
        patches: (object, attribute, value) while the rig runs.
    """

    decoder: Callable[[], Decoder] = Decoder
    memory: Callable[[Decoder], Pages] = Pages
    declarer: type = Declarer
    merge: Merge = merge
    specs: Callable[[list[SlotSpec]], list[SlotSpec]] = lambda specs: specs
    plan: Callable[[SlotRegistry, FillPlan], FillPlan] = lambda registry, plan: plan
    replay: Replay | None = None
    after_capture: Callable[[GraphRig], None] | None = None
    patches: list[tuple[Any, str, Any]] = field(default_factory=list)


Mutation = Callable[[Parts], None]


class GraphRig:
    """Decoder, slots, runner: plain and proven, or sanitized."""

    def __init__(self, parts: Parts, *, report: Report | None = None) -> None:
        self.parts = parts
        self.contract = resolve_contract([parts.declarer], HIDDEN, position_rank=3)
        self.decoder = parts.decoder()
        self.memory = parts.memory(self.decoder)
        guarded = GuardedArena()
        self.registry = (
            _registry(parts, SlotRegistry, Arena())
            if report is None
            else _registry(parts, TrackedRegistry, guarded)
        )
        self.owned = Ownership()
        for name, tensor in self.memory.state().items():
            self.owned.add(tensor, name)
        self.owned.add_module(self.decoder)
        buckets = BucketTable((8, 16))
        self.prover = Prover(
            CONTRACT, self.memory, level=ProofLevel.OFF if report is not None else ProofLevel.FULL
        )
        settings: dict[str, Any] = {
            "registry": self.registry,
            "buckets": buckets,
            "backend": _Backend(self, None if report is None else GuardedScratchArena()),
            "body": lambda inputs: self.decoder(inputs),
            "decider": Decider(
                Phase.PREFILL, buckets, CAPACITY.requests, MAX_CONTEXT, PaddingIsFree()
            ),
            "inputs": self.inputs,
            "owned": self.owned,
            "prover": self.prover,
        }
        self.runner: GraphRunner = (
            GraphRunner(Phase.PREFILL, **settings)
            if report is None
            else SanitizingRunner(
                Phase.PREFILL, report=report, arena=guarded,
                memory=PagedMemory(_Pools(self.memory), PAGE), **settings,
            )
        )  # fmt: skip

    def inputs(self, rows: int) -> BodyInputs:
        """Views of the slots."""
        extent = phase_extent(Phase.PREFILL, rows, CAPACITY)
        return body_inputs(self.registry, CONTRACT, extent, self.attention)

    def attention(self, slots: SlotRegistry, extent: Extent) -> Metadata:
        """Views of the metadata slots."""
        names = (
            "write_locations", "page_table", "attention_rows", "num_token_non_padded", "track_rows",
        )  # fmt: skip
        return Metadata(*(slots.view(name, extent) for name in names))

    def serve(self) -> None:
        """A batch with media; one of text that goes on with the first request; two tokens."""
        a, b = (5, 2, 9, 4), (7, 3, 8)
        self._batch(Placed(a[:2], 0, 7), Placed(b[:2], 0, 6), media=True)
        self._batch(Placed(a[:3], 7, 12), media=False)
        self._batch(Placed(b[:2], 6, 7), Placed(a[:4], 12, 13), media=True)

    def _batch(self, *requests: Placed, media: bool) -> None:
        n = sum(map(len, requests))
        generator = torch.Generator().manual_seed(n)
        natural = torch.cat([torch.arange(r.start, r.end) for r in requests])
        values: dict[str, Tensor | None] = {
            **self.memory.values(requests),
            "positions": natural.repeat(3, 1) + torch.arange(3)[:, None],
            "types": torch.randint(0, 2, (n,), generator=generator) if media else None,
            "layer_embeds": torch.randn(n, 4, generator=generator) if media else None,
        }
        live = Extent(n, len(requests))
        decision = self.runner.decide(live, max(r.end for r in requests))
        if isinstance(self.runner, SanitizingRunner):
            self.runner.expect(footprint(requests))
        self.runner.fill(values, live, decision)
        with torch.inference_mode():
            rows = torch.randn(n, WIDTH, generator=generator)
            self.parts.merge(self.runner.embeds(n), rows, media)
            self.runner.run(decision)


def footprint(requests: Sequence[Placed]) -> Footprint:
    """What a batch may touch, from its pages and not from its metadata."""
    contexts = [token_slots(torch.tensor(r.units), r.end, PAGE) for r in requests]
    new = [context[r.start :] for context, r in zip(contexts, requests, strict=True)]
    return Footprint(torch.cat(contexts), torch.cat(new))


class _Pools(Mapping[str, Tensor]):
    """The pools as they are at every look."""

    def __init__(self, memory: Pages) -> None:
        self._memory = memory

    def __iter__(self) -> Iterator[str]:
        return iter(self._memory.pools())

    def __len__(self) -> int:
        return len(self._memory.pools())

    def __getitem__(self, name: str) -> Tensor:
        return self._memory.pools()[name]


class _Backend(TapeBackend):
    """The tape; a mutation may stand in a graph's replay."""

    def __init__(self, rig: GraphRig, scratch: GuardedScratchArena | None) -> None:
        super().__init__(scratch)
        self._rig = rig

    def capture(self, fn: Callable[[], Tensor], *, owned: Ownership, label: str) -> TapeGraph:
        graph = super().capture(fn, owned=owned, label=label)
        replay = self._rig.parts.replay
        if replay is not None:
            graph.replay = lambda: replay(self._rig, graph)  # type: ignore[method-assign]
        return graph


def _registry(parts: Parts, base: type[SlotRegistry], arena: Arena) -> SlotRegistry:
    class Registry(base):  # type: ignore[misc,valid-type]
        def _plan(self, live: Extent, padded: Extent) -> FillPlan:
            return parts.plan(self, super()._plan(live, padded))

    registry: SlotRegistry = Registry(CAPACITY, arena)
    track = SlotSpec("track_rows", (Dim.R,), torch.int64, Axis.REQUESTS, meaning=Meaning.INDEX)
    for spec in parts.specs([*body_slots(CONTRACT, torch.float32, max_pages=MAX_PAGES), track]):
        registry.register(spec)
    registry.allocate()
    return registry


def examined(mutation: Mutation) -> Callable[[], Caught]:
    """Runs a mutated rig through every level, each on parts of its own."""

    def examine() -> Caught:
        found: dict[Level, list[Any]] = {level: [] for level in Level}
        _plain(_parts(mutation), found)
        _sanitized(_parts(mutation), found)
        return collected(found)

    return examine


def _parts(mutation: Mutation) -> Parts:
    parts = Parts()
    mutation(parts)
    return parts


def _plain(parts: Parts, found: Mapping[Level, list[Any]]) -> None:
    """Build, capture, prove, serve: what a user gets without the sanitizer."""
    with _patched(parts):
        try:
            rig = GraphRig(parts)
            report = rig.runner.capture_all()
            found[Level.CAPTURE].extend(failure.error for failure in report.failures)
            proof = report.proof
            if parts.after_capture is not None and not report.failures:
                parts.after_capture(rig)
                proof = rig.runner.prove(rig.prover)
            if proof is not None:
                found[Level.PROOF] += [f for p in proof.buckets for f in p.findings]
                found[Level.PROOF] += proof.unread
            rig.serve()
        except (ContractError, SlotError) as error:
            found[Level.CONTRACT].append(error)
        except (IndexError, RuntimeError):
            pass  # a crash while serving is what the checks should have foreseen


def _sanitized(parts: Parts, found: Mapping[Level, list[Any]]) -> None:
    report = Report()
    with _patched(parts):
        try:
            rig = GraphRig(parts, report=report)
            rig.runner.capture_all()
            if parts.after_capture is not None:
                parts.after_capture(rig)
            rig.serve()
        except (ContractError, SlotError, CaptureError, IndexError, RuntimeError):
            pass  # what it found before is in the report
    found[Level.SANITIZER].extend(report)


def _patched(parts: Parts) -> ExitStack:
    stack = ExitStack()
    for target, name, value in parts.patches:
        stack.enter_context(mock.patch.object(target, name, value))
    return stack
