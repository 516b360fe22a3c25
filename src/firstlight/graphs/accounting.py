"""Where the bytes and the seconds of captures went, each named once."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar, runtime_checkable

from firstlight.core.reason import Phase
from firstlight.graphs.backend import Graph
from firstlight.graphs.registry import SlotRegistry

_K = TypeVar("_K", bound=Hashable)


class Kind(Enum):
    """What memory is for."""

    SCRATCH = "scratch"  # intermediates; graphs overlay each other, the first pays
    CONSTANT = "constant"  # computed once, at capture
    OUTPUT = "pinned output"
    HOST = "host objects"  # calls and records of graphs, estimated
    GRAPH = "graph"  # a backend that does not say what for
    SLOT = "slot"  # shared by phases, the first pays
    KV = "kv"
    WEIGHTS = "packed weights"  # what fusing added to the weights

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Bytes:
    """Memory that exists for one reason.

    Attributes:
        piece: the slot, the constant's origin, the piece of the graph, the pool.
        phase, bucket: whose it is; None where it serves all.
    """

    kind: Kind
    piece: str
    n_bytes: int
    phase: Phase | None = None
    bucket: int | None = None


@dataclass(frozen=True, slots=True)
class Seconds:
    """Time that one part of a start took.

    Attributes:
        part: ``record``, ``plan``, ``choosing forms``, ``proof``, ``padding cost``, ``other``, or
            what a start does beside captures.
        phase, bucket: None where it belongs to no single one.
    """

    part: str
    seconds: float
    phase: Phase | None = None
    bucket: int | None = None


@runtime_checkable
class Accounted(Protocol):
    """A graph that says what its bytes are for and what its capture spent time on."""

    @property
    def memory(self) -> tuple[tuple[str, str, int], ...]:
        """(kind, piece, bytes) of what was allocated for this graph alone."""
        ...

    def host_bytes(self, seen: set[int]) -> int:
        """Bytes of the graph's objects on the host, beside :attr:`memory`.

        Args:
            seen: identities of objects that are counted already; the graph's are added.
        """
        ...

    @property
    def parts(self) -> Mapping[str, float]:
        """Seconds of the capture by part."""
        ...


def graph_bytes(graph: Graph, phase: Phase, bucket: int) -> list[Bytes]:
    """The memory of one graph by kind."""
    if not isinstance(graph, Accounted):
        return [Bytes(Kind.GRAPH, p.label, graph.bytes, phase, bucket) for p in graph.pieces[:1]]
    return [Bytes(Kind(kind), piece, n, phase, bucket) for kind, piece, n in graph.memory if n]


def host_bytes(graphs: Iterable[tuple[Phase, int, Graph]]) -> list[Bytes]:
    """What the graphs' objects take on the host; one that graphs share belongs to the first."""
    seen: set[int] = set()
    found = [
        Bytes(Kind.HOST, "calls and records", graph.host_bytes(seen), phase, bucket)
        for phase, bucket, graph in graphs
        if isinstance(graph, Accounted)
    ]
    return [entry for entry in found if entry.n_bytes]


def graph_seconds(graph: Graph, phase: Phase, bucket: int) -> list[Seconds]:
    """The time of one capture by part."""
    parts = graph.parts if isinstance(graph, Accounted) else {"record": graph.seconds}
    return [Seconds(part, seconds, phase, bucket) for part, seconds in parts.items()]


def slot_bytes(registries: Mapping[Phase, SlotRegistry]) -> list[Bytes]:
    """The memory of all slots; one that phases share belongs to the first of them."""
    found: dict[int, Bytes] = {}
    for phase, registry in registries.items():
        for name in registry.names:
            storage = registry.buffer(name).untyped_storage()
            entry = Bytes(Kind.SLOT, name, storage.nbytes(), phase)
            found.setdefault(storage.data_ptr(), entry)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Ledger:
    """All entries of a process, and their sums."""

    bytes: tuple[Bytes, ...]
    seconds: tuple[Seconds, ...]

    @property
    def total_bytes(self) -> int:
        """What the process grew by, apart from code and Python objects."""
        return sum(entry.n_bytes for entry in self.bytes)

    @property
    def total_seconds(self) -> float:
        """Seconds of all parts."""
        return sum(entry.seconds for entry in self.seconds)

    def bytes_by_kind(self) -> dict[Kind, int]:
        """Bytes of each kind that occurs, in the order of :class:`Kind`."""
        sums = _sums((e.kind, e.n_bytes) for e in self.bytes)
        return {kind: int(sums[kind]) for kind in Kind if kind in sums}

    def bytes_of(self, phase: Phase, bucket: int) -> dict[Kind, int]:
        """Bytes of one bucket by kind."""
        own = [e for e in self.bytes if (e.phase, e.bucket) == (phase, bucket)]
        return {kind: int(n) for kind, n in _sums((e.kind, e.n_bytes) for e in own).items()}

    def seconds_by_part(self) -> dict[str, float]:
        """Seconds of each part, all buckets together."""
        return _sums((e.part, e.seconds) for e in self.seconds)

    def seconds_of(self, phase: Phase, bucket: int) -> dict[str, float]:
        """Seconds of one bucket by part."""
        own = [e for e in self.seconds if (e.phase, e.bucket) == (phase, bucket)]
        return _sums((e.part, e.seconds) for e in own)


def rest(entries: Iterable[Seconds], wall: float, phase: Phase) -> Seconds:
    """What of ``wall`` seconds the entries do not explain: dummies, bookkeeping, progress."""
    return Seconds("other", max(wall - sum(e.seconds for e in entries), 0.0), phase)


def _sums(pairs: Iterable[tuple[_K, float]]) -> dict[_K, float]:
    sums: dict[_K, float] = {}
    for key, value in pairs:
        sums[key] = sums.get(key, 0) + value
    return sums
