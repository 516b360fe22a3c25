"""Captures bodies as CUDA graphs: in pieces around eager calls, or whole.

The body runs once and its operations are recorded, as by the tape. Intermediates then get places in
one arena, and every operation becomes a call over fixed addresses. The calls are warmed up in
order, and captured piece by piece. So all memory between pieces has an owner and a lifetime that
were planned, a refused operation is known by name and source line before CUDA sees it, and what the
pieces do is the same whatever device they run on.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload

from firstlight.errors import CaptureError, CaptureMemoryError
from firstlight.graphs.arena import ScratchArena
from firstlight.graphs.backends.cuda.api import CapturedPiece, GraphApi, MemoryCounters
from firstlight.graphs.backends.cuda.cut import CapturePlan, Define, Kind, Segment, cut, plan_of
from firstlight.graphs.backends.cuda.graph import (
    CaptureBytes,
    CaptureSeconds,
    EagerCall,
    Insides,
    Part,
    SegmentedGraph,
)
from firstlight.graphs.backends.tape.build import Memory, bind_call, constants_of
from firstlight.graphs.backends.tape.choose import FormChooser
from firstlight.graphs.backends.tape.fold import ConstantPool, fold
from firstlight.graphs.backends.tape.plan import plan_memory
from firstlight.graphs.backends.tape.record import OpCall, Place, Recording, leaves, map_nested
from firstlight.graphs.backends.tape.recorder import record
from firstlight.graphs.ownership import Ownership

WARM_UPS = 2
"""Whole runs before a capture: the first one loads kernels and takes workspaces, and some libraries
choose at the second."""


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of a piece, and which operation it is."""

    run: Callable[[], object]
    op: str
    where: str


@dataclass(slots=True)
class _Built:
    """A plan whose operations are calls; one list of calls a graph segment, or an eager call."""

    plan: CapturePlan
    memory: Memory
    result: Place
    parts: list[list[_Call] | EagerCall] = field(default_factory=list)


class CudaBackend:
    """CUDA graphs; see :mod:`firstlight.graphs.backends.cuda.backend`.

    Weights must not change while graphs exist. Graphs of one backend share an arena, constants and
    a memory pool, and must not run at the same time. Capture the largest bucket first.

    Args:
        api: the device.
        attention: operations that attend: each runs eager between two pieces.
        whole: capture attention too, so that a body is one piece. Its kernel must take all that
            changes from tensors, and read none of it on the host.
        scratch: where intermediates and bridges live; one per process serves all backends.
    """

    def __init__(
        self,
        api: GraphApi,
        *,
        attention: Collection[OpOverload],
        whole: bool = False,
        scratch: ScratchArena | None = None,
    ) -> None:
        self.api = api
        self.whole = whole
        self.scratch = ScratchArena(api.device) if scratch is None else scratch
        self._attention = frozenset(attention)
        self._chooser = FormChooser({}, api.device, timed=False)
        self._constants = ConstantPool()
        self._unclaimed = 0  # bytes that a plan took of the arena, and no graph has yet

    @property
    def name(self) -> str:
        """``cuda``, or ``cuda-whole``."""
        return "cuda-whole" if self.whole else "cuda"

    def capture(
        self, fn: Callable[[], torch.Tensor], *, owned: Ownership, label: str
    ) -> SegmentedGraph:
        """Run ``fn`` once, and capture what it did.

        Raises:
            CaptureError: ``fn`` reads values on the host (HostReadError), makes shapes from data
                (DynamicShapeError), touches memory that nobody owns (UnownedTensorError), draws
                random numbers, or does what CUDA cannot capture; with the op and the source line.
            CaptureMemoryError: the device has no room for it.
        """
        with torch.inference_mode(False), _without_gc(), self._room_for(label):
            return self._capture(fn, owned, label)

    def recording(self, fn: Callable[[], torch.Tensor], owned: Ownership) -> Recording:
        """Run ``fn`` once and return what a capture would hold, without making a graph.

        Raises:
            CaptureError: as for :meth:`capture`, but for what CUDA alone refuses.
        """
        with torch.inference_mode(False):
            return record(fn, owned, {}, self.api.device)

    def plan(self, fn: Callable[[], torch.Tensor], *, owned: Ownership, label: str) -> CapturePlan:
        """Run ``fn`` once, and say what a capture would hold; memory is reserved for it.

        Raises:
            CaptureError: as for :meth:`capture`.
        """
        with torch.inference_mode(False), self._room_for(label):
            built = self._build(fn, owned, label, keep=False)[0]
        self._unclaimed += built.memory.fresh_bytes
        return built.plan

    @contextmanager
    def _room_for(self, label: str) -> Iterator[None]:
        """Says what it was that there was no memory for, and gives back what can be."""
        try:
            yield
        except (RuntimeError, MemoryError) as error:
            if not _out_of_memory(error):
                raise
            self.api.release_unused()
            raise CaptureMemoryError(self._no_room(label, error)) from error

    def _capture(
        self, fn: Callable[[], torch.Tensor], owned: Ownership, label: str
    ) -> SegmentedGraph:
        before = self.api.counters()
        built, constants, (recorded, planned) = self._build(fn, owned, label)
        started = time.perf_counter()
        with self.api.stream():
            for _ in range(WARM_UPS):
                self._warm(built)
            warmed = time.perf_counter()
            pieces, pools = self._pieces(built)
        self.api.synchronise()
        captured = time.perf_counter()
        self.api.release_unused()  # what recording took, and graphs did not keep
        scratch, self._unclaimed = built.memory.fresh_bytes + self._unclaimed, 0
        return SegmentedGraph(
            label,
            built.plan,
            [p if isinstance(p, EagerCall) else next(pieces) for p in built.parts],
            built.memory.tensor(built.result),
            keep=_held(built),
            insides=_insides(built),
            constants=constants,
            taken=CaptureBytes(scratch, pools, self._driver(before)),
            times=CaptureSeconds(recorded, planned, warmed - started, captured - warmed),
        )

    def _build(
        self, fn: Callable[[], torch.Tensor], owned: Ownership, label: str, *, keep: bool = True
    ) -> tuple[_Built, Any, tuple[float, float]]:
        """The plan as calls, the constants, and the seconds of recording and of the rest.

        Args:
            keep: whether other graphs are to share its constants.
        """
        started = time.perf_counter()
        recording = record(fn, owned, {}, self.api.device)
        recorded = time.perf_counter()
        folded = fold(recording)
        breaks = frozenset() if self.whole else self._attention
        segments = cut(recording, folded, label=label, breaks=breaks, opaque=self._attention)
        fresh = self._constants.share(recording, folded.constants) if keep else {}
        places = plan_memory(recording, folded.ops, folded.constants)
        memory = Memory(recording, places, self.scratch, pin_output=False)
        plan = plan_of(recording, segments, places)
        built = _Built(plan, memory, recording.output)
        read = {recording.output.storage}.union(*(op.reads for op in folded.ops))
        for segment in segments:
            built.parts.append(self._part(segment, memory, read))
        constants = constants_of(recording, fresh)
        return built, constants, (recorded - started, time.perf_counter() - recorded)

    def _part(self, segment: Segment, memory: Memory, read: set[int]) -> list[_Call] | EagerCall:
        if segment.kind is Kind.EAGER:
            (op,) = segment.items
            assert isinstance(op, OpCall)
            return _eager_call(op, memory, read)
        calls: list[_Call] = []
        for item in segment.items:
            if isinstance(item, Define):
                calls.append(_Call(memory.tensor(item.place).zero_, "define", ""))
            else:
                run, _ = bind_call(item, memory, self._chooser, read)
                calls.append(_Call(run, item.name, item.where))
        return calls

    def _warm(self, built: _Built) -> None:
        """One whole run in order, to its end: kernels are loaded and workspaces taken."""
        with torch.inference_mode():
            for part in built.parts:
                if isinstance(part, EagerCall):
                    part.replay()
                else:
                    for call in part:
                        call.run()
        self.api.synchronise()

    def _pieces(self, built: _Built) -> tuple[Iterator[CapturedPiece], tuple[tuple[str, int], ...]]:
        """The captured graph segments in order, and what the pool grew by for each."""
        pieces: list[Part] = []
        pools: list[tuple[str, int]] = []
        with torch.inference_mode():
            for segment, part in zip(built.plan.segments, built.parts, strict=True):
                if isinstance(part, EagerCall):
                    continue
                reserved = self.api.counters().reserved
                pieces.append(self._piece(part))
                grown = max(self.api.counters().reserved - reserved, 0)
                pools.append((segment.label, grown))
        return iter(pieces), tuple(pools)

    def _piece(self, calls: list[_Call]) -> CapturedPiece:
        """One captured piece; a capture that fails is ended and freed."""
        at = _Call(_nothing, "the end of the capture", "")
        try:
            self.api.begin()
            for at in calls:
                at.run()
            at = _Call(_nothing, "the end of the capture", "")
            return self.api.end()
        except BaseException as error:
            self.api.abort()
            if not isinstance(error, RuntimeError) or _out_of_memory(error):
                raise
            said = str(error).strip().partition("\n")[0]
            raise CaptureError(
                f"CUDA cannot capture it: {said}", op=at.op, where=at.where or "no source line"
            ) from error

    def _driver(self, before: MemoryCounters) -> int:
        """What the device lost beyond what torch's allocator took."""
        now = self.api.counters()
        return max((before.free - now.free) - (now.reserved - before.reserved), 0)

    def _no_room(self, label: str, error: BaseException) -> str:
        now = self.api.counters()
        said = str(error).strip().partition("\n")[0]
        return (
            f"no memory on {self.api.device} for the graph of {label}: {said} ({now.free} of "
            f"{now.total} bytes are free, this process holds {now.reserved}); smaller or fewer "
            "buckets, or a smaller KV pool, leave more"
        )


def _out_of_memory(error: BaseException) -> bool:
    """Whether torch's allocator, or the driver behind its back, ran out."""
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or "out of memory" in str(error)


def _eager_call(op: OpCall, memory: Memory, read: set[int]) -> EagerCall:
    def leaf(value: Any) -> Any:
        return memory.tensor(value) if isinstance(value, Place) else value

    kwargs = {name: map_nested(leaf, value) for name, value in op.kwargs.items()}
    outs = tuple(
        memory.tensor(p) if p is not None and p.storage in read else None for p in op.outputs
    )
    args = tuple(map_nested(leaf, op.args))
    return EagerCall(op.func._op, args, kwargs, outs if any(o is not None for o in outs) else ())


def _held(built: _Built) -> list[torch.UntypedStorage]:
    """The memory that captured pieces address. What only eager calls use is theirs alone, so that
    a pool can be replaced."""
    found: dict[int, torch.UntypedStorage] = {}
    for segment in built.plan.segments:
        if segment.kind is Kind.GRAPH:
            for index in (*segment.reads, *segment.writes):
                found[index], _ = built.memory.where(index)
    return list(found.values())


def _insides(built: _Built) -> Insides:
    """The memory between the segments: of each bridge, the place that was written last."""
    memory, output = built.memory, built.result.storage
    handed: list[tuple[torch.Tensor, ...]] = []
    for segment in built.plan.segments:
        found: dict[int, Place] = {}
        for place in leaves([_places(item) for item in segment.items]):
            if isinstance(place, Place) and place.storage in segment.writes:
                found[place.storage] = place
        if output in found:
            found[output] = built.result
        handed.append(tuple(memory.tensor(p) for i, p in found.items() if i in memory.offsets))
    return Insides(memory.block, output, tuple(handed))


def _places(item: OpCall | Define) -> list[Any]:
    """Where an operation writes, among other places."""
    if isinstance(item, Define):
        return [item.place]
    return [item.args, item.kwargs, item.outputs]


def _nothing() -> None:
    """No call."""


@contextmanager
def _without_gc() -> Iterator[None]:
    """No finaliser may free device memory in the middle of a capture."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
