"""Replays a graph of CUDA pieces part by part, with the memory between them poisoned before.

What lies inside of a piece cannot be looked at: a piece runs as a whole. So the memory of all
intermediates is poisoned once, before the first piece, and what is found is put to a piece.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.graphs.backends.cuda import Kind, Segment, SegmentedGraph
from firstlight.graphs.backends.tape.record import OpCall
from firstlight.graphs.sanitizer.audit import Fault
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.guard import GUARD
from firstlight.graphs.sanitizer.memory import compact
from firstlight.graphs.sanitizer.poison import WORD, words
from firstlight.graphs.sanitizer.stepwise import Watch
from firstlight.graphs.sanitizer.trouble import Trouble

NOT_LOOKED_AT = (
    "intermediates inside of a piece: a replay runs it as a whole, so all of them are poisoned "
    "before the first piece, and not each between its last and its first use",
    "memory of the graphs' own pool, which only captured kernels address",
    "padding of integer slots and rows beyond the bucket hold legal indices instead of ids that do "
    "not exist: on a GPU those would end the process",
    "the first operation of a fault: the first piece is named instead",
)
"""What of the sanitizer needs memory of a CPU, in words."""


@dataclass(frozen=True, slots=True)
class PieceStage:
    """A graph piece or an eager call as a step."""

    name: str
    where: str
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    @classmethod
    def of(cls, segment: Segment) -> PieceStage:
        """A segment, with the line of its first operation."""
        lines = (op.where for op in segment.items if isinstance(op, OpCall) and op.where)
        return cls(segment.label, next(lines, ""), segment.reads, segment.writes)


class SegmentedReplay:
    """A graph of pieces, run one by one. Its block must be of a :class:`GuardedScratchArena`."""

    def __init__(self, graph: SegmentedGraph) -> None:
        self.graph = graph
        self._stages = tuple(PieceStage.of(segment) for segment in graph.plan.segments)

    @property
    def output(self) -> Tensor:
        """The captured output."""
        return self.graph.output

    @property
    def stages(self) -> Sequence[PieceStage]:
        """The pieces and the eager calls."""
        return self._stages

    @property
    def leaving(self) -> set[int]:
        """The output, and memory of slots, pools and weights."""
        bridges = {bridge.storage for bridge in self.graph.plan.bridges}
        written = {index for stage in self._stages for index in stage.writes}
        return (written - bridges) | (written & {self.graph.insides.output})

    def run(self, *, poison: bool, watch: Watch | None = None) -> Trouble | None:
        """Replay once; see :class:`~firstlight.graphs.sanitizer.stepwise.Stepwise`."""
        whole = words(self.graph.insides.block, 0, self.graph.insides.block.nbytes())
        with torch.inference_mode():
            if poison:
                whole.fill_(WORD)
            for step, (call, stage) in enumerate(zip(self.graph.calls, self._stages, strict=True)):
                try:
                    call()
                except (IndexError, RuntimeError, ValueError, TypeError, ArithmeticError) as error:
                    text = " ".join(str(error).split())
                    return Trouble("raised", text, stage.name, stage.where, step)
                if watch is not None:
                    watch(step)
            return self._beyond(whole) if poison else None

    def results(self, step: int) -> list[Tensor]:
        """What a piece leaves for later ones."""
        return list(self.graph.insides.handed[step])

    def writer_of(self, name: str, pool: Tensor) -> tuple[str, str] | None:
        """The first piece or call that writes memory of the owner ``name``, with its line."""
        owners = self.graph.plan.owners
        for stage in self._stages:
            if any(owners[index] == name for index in stage.writes):
                return stage.name, stage.where
        return None

    def _beyond(self, whole: Tensor) -> Trouble | None:
        """The end of the block, which belongs to no intermediate, must be poison still."""
        first = len(whole) - GUARD // 2
        wrong = whole[first:].ne(WORD)
        if not bool(wrong.any()):
            return None
        at = ((wrong.nonzero().flatten() + first) * 2).tolist()
        return Trouble("outside", f"scratch bytes {compact(at)}, which no intermediate holds")


def stale_calls(graph: SegmentedGraph, now: Mapping[str, Tensor]) -> Iterator[Fault]:
    """Eager calls that use memory which its owner has left.

    Args:
        now: slots and pools as they are, by owner name.
    """
    calls = iter(graph.eager_calls)
    for segment in graph.plan.segments:
        if segment.kind is not Kind.EAGER:
            continue
        given = {t.untyped_storage().data_ptr() for t in _tensors(next(calls).args)}
        for index in {*segment.reads, *segment.writes}:
            owner = graph.plan.owners[index]
            tensor = now.get(owner)
            if tensor is not None and tensor.untyped_storage().data_ptr() not in given:
                yield Fault(
                    FindingKind.STALE_ADDRESS,
                    owner,
                    f"{owner} lies elsewhere now; the call still uses the memory it had before",
                    segment.label,
                )


def slot_writes(graph: SegmentedGraph) -> Iterator[Fault]:
    """Slots that a piece writes, which the merge alone may write."""
    for segment in graph.plan.segments:
        for index in segment.writes:
            owner = graph.plan.owners[index]
            if owner.startswith("slot "):
                detail = f"{segment.label} writes {owner}"
                where = PieceStage.of(segment).where
                yield Fault(FindingKind.SLOT_WRITTEN, owner, detail, segment.label, where)


def _tensors(args: tuple[object, ...]) -> list[Tensor]:
    return [value for value in args if isinstance(value, Tensor)]
