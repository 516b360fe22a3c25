"""The ledger of an engine: graphs, slots, KV and weights, and the seconds of its start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn, strided

from firstlight.core.reason import Phase
from firstlight.engine.costs import Costs
from firstlight.engine.heap import mapped_from_files
from firstlight.graphs import CaptureReport, GraphRunner
from firstlight.graphs.accounting import (
    Bytes,
    Kind,
    Ledger,
    Seconds,
    graph_bytes,
    graph_seconds,
    host_bytes,
    rest,
    slot_bytes,
)
from firstlight.memory import KVPool


def ledger_of(
    runners: Mapping[Phase, GraphRunner],
    captures: Mapping[Phase, CaptureReport],
    pool: KVPool,
    costs: Costs,
    packed_bytes: int,
    warm_seconds: float | None = None,
) -> Ledger:
    """All entries of an engine.

    Args:
        packed_bytes: memory that fusing took for weights, see :class:`Weights`.
        warm_seconds: of the encoder's first picture, if there was one.
    """
    graphs = [(p, b, g) for p, runner in runners.items() for b, g in runner.graphs.items()]
    memory = [
        *(entry for phase, bucket, graph in graphs for entry in graph_bytes(graph, phase, bucket)),
        *host_bytes(graphs),
        *slot_bytes({phase: runner.registry for phase, runner in runners.items()}),
        *_pool_bytes(pool),
        Bytes(Kind.WEIGHTS, "fused modules", packed_bytes),
    ]
    seconds = [s for phase in runners for s in _seconds(phase, runners[phase], captures[phase])]
    for phase, cost in costs.items():
        if cost.times is not None:
            seconds.append(Seconds("padding cost", cost.times.seconds, phase))
    if warm_seconds is not None:
        seconds.append(Seconds("encoder warm-up", warm_seconds))
    return Ledger(tuple(memory), tuple(seconds))


@dataclass(frozen=True, slots=True)
class Weights:
    """The memory of a model's weights, each storage once, at one point in time.

    Attributes:
        sizes: bytes by address; packed weights of opaque layout by the tensor's identity.
        mapped: addresses that are mapped from a file.
    """

    sizes: Mapping[int, int]
    mapped: frozenset[int]

    @classmethod
    def of(cls, model: nn.Module) -> Weights:
        """As they are now."""
        sizes: dict[int, int] = {}
        for tensor in _tensors(model):
            if tensor.layout is strided:
                storage = tensor.untyped_storage()
                sizes[storage.data_ptr()] = storage.nbytes()
            else:  # an opaque layout has no storage to look at
                sizes[id(tensor)] = tensor.numel() * tensor.element_size()
        return cls(sizes, frozenset(mapped_from_files(sizes)))

    @property
    def total(self) -> int:
        """Bytes of all weights."""
        return sum(self.sizes.values())

    def grown_from(self, before: Weights) -> int:
        """Memory that was allocated since ``before``, less what was freed.

        Weights that were mapped from a file free nothing when they are replaced.
        """
        freed = before.sizes.keys() - self.sizes.keys() - before.mapped
        made = sum(n for address, n in self.sizes.items() if address not in before.sizes)
        return made - sum(before.sizes[address] for address in freed)


def describe_bytes(ledger: Ledger) -> list[dict[str, Any]]:
    """Sums by kind, and below each kind by phase and bucket; the last row is the total."""
    rows: list[dict[str, Any]] = []
    for kind, total in ledger.bytes_by_kind().items():
        sums: dict[tuple[str | None, int | None], int] = {}
        for entry in ledger.bytes:
            if entry.kind is kind:
                key = (None if entry.phase is None else entry.phase.value, entry.bucket)
                sums[key] = sums.get(key, 0) + entry.n_bytes
        rows.append({"kind": kind.value, "phase": None, "bucket": None, "bytes": total})
        rows += [
            {"kind": kind.value, "phase": phase, "bucket": bucket, "bytes": n}
            for (phase, bucket), n in sums.items()
            if n and phase is not None
        ]
    return [*rows, {"kind": "all", "phase": None, "bucket": None, "bytes": ledger.total_bytes}]


def describe_seconds(ledger: Ledger) -> list[dict[str, Any]]:
    """Sums by phase and part; the last row is the total."""
    sums: dict[tuple[str | None, str], float] = {}
    for entry in ledger.seconds:
        key = (None if entry.phase is None else entry.phase.value, entry.part)
        sums[key] = sums.get(key, 0.0) + entry.seconds
    rows = [{"phase": p, "part": part, "seconds": round(s, 4)} for (p, part), s in sums.items()]
    return [*rows, {"phase": None, "part": "all", "seconds": round(ledger.total_seconds, 4)}]


def _pool_bytes(pool: KVPool) -> Iterator[Bytes]:
    for name, tensors in (("keys", pool.keys), ("values", pool.values)):
        for layer, tensor in enumerate(tensors):
            yield Bytes(Kind.KV, f"{name} of layer {layer}", tensor.untyped_storage().nbytes())


def _seconds(phase: Phase, runner: GraphRunner, capture: CaptureReport) -> list[Seconds]:
    entries: list[Seconds] = []
    for report in capture.buckets:
        entries += graph_seconds(runner.graphs[report.bucket], phase, report.bucket)
        if report.proof is not None:
            entries.append(Seconds("proof", report.proof.seconds, phase, report.bucket))
    return [*entries, rest(entries, capture.seconds, phase)]


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers and plain tensor attributes of all modules."""
    for module in model.modules():
        for value in (
            *module.parameters(recurse=False),
            *module.buffers(recurse=False),
            *vars(module).values(),
        ):
            if isinstance(value, Tensor):
                yield value
