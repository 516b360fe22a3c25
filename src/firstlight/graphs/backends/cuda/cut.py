"""Where a recorded body is cut, and what crosses the cuts: a plan that is data."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum

from torch._ops import OpOverload

from firstlight.errors import CaptureError, HostReadError
from firstlight.graphs.backends.tape.fold import Folded
from firstlight.graphs.backends.tape.plan import MemoryPlan
from firstlight.graphs.backends.tape.record import OpCall, Origin, Place, Recording, leaves


class Kind(Enum):
    """How one part of a plan is run."""

    GRAPH = "graph"
    EAGER = "eager"


@dataclass(frozen=True, slots=True)
class Define:
    """Zeros for memory that an eager call writes first: its padding rows are then defined, whatever
    rows the call writes, and hold nothing that another bucket left."""

    place: Place


@dataclass(frozen=True, slots=True)
class Segment:
    """One part of a plan: work of one graph, or one eager call.

    Attributes:
        items: in order; an eager segment has its one call.
        reads: storages from outside of it: weights, slots, pools, constants and bridges.
        writes: storages for outside of it. What lives inside of it alone is in neither.
    """

    kind: Kind
    label: str
    items: tuple[OpCall | Define, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bridge:
    """Memory of the plan's arena that one segment writes and a later one reads.

    Attributes:
        storage: its index in the recording; ``offset`` and ``n_bytes``: its place in the arena.
        first, last: the segments that touch it first and last.
    """

    storage: int
    owner: str
    offset: int
    n_bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class CapturePlan:
    """Segments in the order of a replay, and the bridges between them."""

    segments: tuple[Segment, ...]
    bridges: tuple[Bridge, ...]
    owners: tuple[str, ...] = field(repr=False)

    def lines(self) -> list[str]:
        """One line a segment and one a bridge, to print or to compare."""
        found = []
        for number, segment in enumerate(self.segments):
            reads = ", ".join(self.owners[i] for i in segment.reads)
            writes = ", ".join(self.owners[i] for i in segment.writes)
            head = f"{number} {segment.kind.value} {segment.label}: {len(segment.items)} ops"
            found.append(f"{head}; reads {reads or 'nothing'}; writes {writes or 'nothing'}")
        for bridge in self.bridges:
            found.append(
                f"bridge {bridge.owner}: bytes [{bridge.offset}, {bridge.offset + bridge.n_bytes}) "
                f"of the arena, segments {bridge.first} to {bridge.last}"
            )
        return found


def cut(
    recording: Recording,
    folded: Folded,
    *,
    label: str,
    breaks: Collection[OpOverload],
    opaque: Collection[OpOverload] = (),
) -> tuple[Segment, ...]:
    """The folded operations as graph segments around eager calls.

    Args:
        breaks: operations that run eager.
        opaque: operations that may leave rows of their results as they were; breaks are too.

    Raises:
        CaptureError: an operation moves data between the host and the device, or reads memory that
            nothing wrote; with the operation and the source line.
    """
    groups: list[tuple[Kind, list[OpCall | Define]]] = []
    written = _defined(recording, folded)

    def graph() -> list[OpCall | Define]:
        if not groups or groups[-1][0] is Kind.EAGER:
            groups.append((Kind.GRAPH, []))
        return groups[-1][1]

    for op in folded.ops:
        _check_host(recording, folded, op)
        fresh = [i for i in op.writes if i not in written]
        if op.func in breaks or op.func in opaque:
            places = _whole_places(recording, op, fresh)
            if places:
                graph().extend(Define(place) for place in places)
        else:
            _check_written(recording, op, written)
        written.update(op.writes)
        if op.func in breaks:
            groups.append((Kind.EAGER, [op]))
        else:
            graph().append(op)
    return _segments(recording, folded, groups, label)


def plan_of(recording: Recording, segments: tuple[Segment, ...], memory: MemoryPlan) -> CapturePlan:
    """The segments with the bridges between them, placed as ``memory`` has placed them."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for number, segment in enumerate(segments):
        for index in _touched(segment):
            if index in memory.offsets:
                first.setdefault(index, number)
                last[index] = number
    last_segment = len(segments) - 1
    if recording.output.storage in first:
        last[recording.output.storage] = last_segment
    storages = recording.storages
    bridges = tuple(
        Bridge(
            index, storages[index].owner, memory.offsets[index], storages[index].n_bytes,
            first[index], last[index],
        )
        for index in sorted(first)
        if last[index] > first[index]
    )  # fmt: skip
    return CapturePlan(segments, bridges, tuple(record.owner for record in storages))


def _segments(
    recording: Recording,
    folded: Folded,
    groups: Sequence[tuple[Kind, list[OpCall | Define]]],
    label: str,
) -> tuple[Segment, ...]:
    users: dict[int, set[int]] = {}
    for number, (_, items) in enumerate(groups):
        for item in items:
            for index in _storages(item):
                users.setdefault(index, set()).add(number)
    inner = {
        index
        for index, numbers in users.items()
        if len(numbers) == 1
        and recording.storages[index].origin is Origin.MADE
        and index not in folded.constants
        and index != recording.output.storage
    }
    segments = []
    for number, (kind, items) in enumerate(groups):
        writes: set[int] = set()
        reads: set[int] = set()
        for item in items:
            reads.update(i for i in _reads(item) if i not in writes)
            writes.update(_writes(item))
        reads, writes = reads - inner, writes - inner
        name = str(items[0].func) if isinstance(items[0], OpCall) else "define"
        text = f"{label} piece {number}" if kind is Kind.GRAPH else name
        segments.append(
            Segment(kind, text, tuple(items), tuple(sorted(reads)), tuple(sorted(writes)))
        )
    return tuple(segments)


def _defined(recording: Recording, folded: Folded) -> set[int]:
    """Storages that hold something before the first replayed operation."""
    outside = {s.index for s in recording.storages if s.origin is not Origin.MADE}
    return outside | set(folded.constants)


def _whole_places(recording: Recording, op: OpCall, indices: Sequence[int]) -> list[Place]:
    """The widest place of each storage among an operation's arguments."""
    found: dict[int, Place] = {}
    for place in leaves((op.args, op.kwargs)):
        if isinstance(place, Place) and place.storage in indices:
            found.setdefault(place.storage, place)
    sized = []
    for index, place in found.items():
        n = recording.storages[index].n_bytes // place.dtype.itemsize
        sized.append(Place(index, 0, (n,), (1,), place.dtype))
    return sized


def _check_written(recording: Recording, op: OpCall, written: set[int]) -> None:
    """Refuse reads of memory that no operation wrote."""
    for index in op.reads:
        record = recording.storages[index]
        if index in written or index in op.writes or record.n_bytes == 0:
            continue
        raise CaptureError(
            f"it reads {record.owner}, which no operation of torch has written: a kernel that is "
            "launched past torch cannot be captured; register it as a custom operation",
            op=op.name, where=op.where,
        )  # fmt: skip


def _check_host(recording: Recording, folded: Folded, op: OpCall) -> None:
    """Refuse what moves data between the host and the device: a replay could not, or would wait."""
    places = [p for p in leaves((op.args, op.kwargs, op.outputs)) if isinstance(p, Place)]
    device = recording.storages[recording.output.storage].device
    for place in places:
        record = recording.storages[place.storage]
        if record.device.type == device.type:
            continue
        if place.storage in op.writes:
            raise HostReadError(
                f"the body copies to {record.device} while it runs on {device}: every replay would "
                "have to wait for the device",
                op=op.name, where=op.where,
            )  # fmt: skip
        # One number of the host that never changes becomes part of the kernel's arguments.
        fixed = record.origin is Origin.FROZEN or place.storage in folded.constants
        if not (fixed and place.size == ()):
            raise CaptureError(
                f"the body reads {record.owner}, which lies on {record.device}, while it runs on "
                f"{device}; move it to {device} before the capture",
                op=op.name, where=op.where,
            )  # fmt: skip


def _storages(item: OpCall | Define) -> tuple[int, ...]:
    return (*_reads(item), *_writes(item))


def _touched(segment: Segment) -> set[int]:
    return {index for item in segment.items for index in _storages(item)}


def _reads(item: OpCall | Define) -> tuple[int, ...]:
    return () if isinstance(item, Define) else item.reads


def _writes(item: OpCall | Define) -> tuple[int, ...]:
    return (item.place.storage,) if isinstance(item, Define) else item.writes
