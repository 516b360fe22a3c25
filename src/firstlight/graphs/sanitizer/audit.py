"""Checks of a captured graph that need no run: memory plan, writes, and addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.graphs.backends.tape.graph import Region, TapeGraph
from firstlight.graphs.backends.tape.record import Origin
from firstlight.graphs.ownership import Ownership, has_storage
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.replay import CheckedReplay


@dataclass(frozen=True, slots=True)
class Fault:
    """A finding before phase and bucket are put to it."""

    kind: FindingKind
    subject: str
    detail: str
    op: str = ""
    where: str = ""


def audit(replay: CheckedReplay) -> Iterator[Fault]:
    """Everything that is wrong with a graph as it was captured."""
    calls, ops = len(replay.graph.calls), len(replay.ops)
    if calls != ops:
        detail = f"a replay makes {calls} calls for {ops} recorded operations"
        yield Fault(FindingKind.NOT_REPEATABLE, "graph", detail)
    yield from _overlaps(replay)
    yield from _unwritten(replay)
    yield from _owned_writes(replay)


def _overlaps(replay: CheckedReplay) -> Iterator[Fault]:
    """Intermediates that are alive together and share bytes."""
    by_start = sorted(replay.lifetimes, key=lambda i: replay.regions[i].start)
    for position, index in enumerate(by_start):
        one, (first, last) = replay.regions[index], replay.lifetimes[index]
        for other in by_start[position + 1 :]:
            two, (begins, ends) = replay.regions[other], replay.lifetimes[other]
            if two.start >= one.end:
                break
            if begins <= last and first <= ends and two.end > two.start:
                op = replay.ops[min(max(first, begins), len(replay.ops) - 1)]
                yield Fault(
                    FindingKind.SCRATCH_OVERLAP,
                    two.owner,
                    f"bytes {two.start - one.start} and up of {one.owner}, alive in steps {first} "
                    f"to {last}, belong also to {two.owner}, alive in steps {begins} to {ends}",
                    op.name,
                    op.where,
                )


def _unwritten(replay: CheckedReplay) -> Iterator[Fault]:
    """Intermediates that are read before anything writes them."""
    for index, (first, _) in replay.lifetimes.items():
        if first >= len(replay.ops):
            continue
        op = replay.ops[first]
        if index in op.reads and index not in op.writes:
            owner = replay.regions[index].owner
            yield Fault(
                FindingKind.STALE_INTERMEDIATE,
                owner,
                f"step {first} reads {owner}, which no step has written",
                op.name,
                op.where,
            )


def _owned_writes(replay: CheckedReplay) -> Iterator[Fault]:
    """Slots and weights that the body itself writes."""
    for step, op in enumerate(replay.ops):
        for index in op.writes:
            region = replay.regions.get(index)
            if region is None or region.scratch:
                continue
            kind = _kind_of_write(region)
            if kind is not None:
                detail = f"step {step} of the body writes {region.owner}"
                yield Fault(kind, region.owner, detail, op.name, op.where)


def _kind_of_write(region: Region) -> FindingKind | None:
    if region.owner.startswith("slot "):
        return FindingKind.SLOT_WRITTEN
    return FindingKind.WEIGHT_WRITTEN if region.origin is Origin.FROZEN else None


def frozen_slots(owned: Ownership) -> Iterator[Fault]:
    """Slots that are declared never to change, so that what follows from them was folded away."""
    for record in owned.records():
        if record.frozen and record.owner.startswith("slot "):
            detail = f"{record.owner} is declared frozen; its contents at capture became constants"
            yield Fault(FindingKind.BAKED_CONSTANT, record.owner, detail)


def stale_addresses(
    graph: TapeGraph, owned: Ownership, named: Mapping[str, Tensor]
) -> Iterator[Fault]:
    """Memory that the graph reads although its owner is elsewhere by now.

    Args:
        named: slots and pools as they are now, by owner name.
    """
    now: dict[str, Tensor] = {**dict(owned.current()), **named}
    lookup = {owner: t for owner, t in now.items() if has_storage(t)}
    for region in graph.regions:
        address = region.storage.data_ptr() + region.offset
        if address != region.start or region.storage.nbytes() < region.end - region.start:
            yield Fault(
                FindingKind.STALE_ADDRESS,
                region.owner,
                f"the memory of {region.owner} was resized or moved after the capture",
            )
        tensor = None if region.origin is Origin.MADE else lookup.get(region.owner)
        if tensor is None or tensor.untyped_storage().data_ptr() == region.storage.data_ptr():
            continue
        op = next(s.op for s in graph.steps if region.index in (*s.op.reads, *s.op.writes))
        yield Fault(
            FindingKind.STALE_ADDRESS,
            region.owner,
            f"{region.owner} lies elsewhere now; the graph still uses the memory it had at capture",
            op.name,
            op.where,
        )


class WeightVersions:
    """Notices weights that are changed in place, which makes folded constants wrong.

    A change through ``.data`` leaves no version behind; of small weights the contents are compared.
    """

    _SMALL = 1 << 16  # elements

    def __init__(self, owned: Ownership) -> None:
        self._seen = [
            (record.owner, record.tensor, _version(record.tensor), self._sum(record.tensor))
            for record in owned.records()
            if record.frozen
        ]

    def changed(self) -> Iterator[Fault]:
        """Every frozen tensor that is not what it was."""
        for owner, tensor, version, total in self._seen:
            if _version(tensor) != version or self._sum(tensor) != total:
                detail = f"{owner} was changed in place after the capture"
                yield Fault(FindingKind.WEIGHT_WRITTEN, owner, detail)

    def _sum(self, tensor: Tensor) -> float:
        if not has_storage(tensor) or tensor.numel() > self._SMALL or tensor.is_complex():
            return 0.0
        total = tensor.detach().double().nan_to_num()
        # Weighted by position, so that a permutation shows.
        n = total.numel()
        weights = torch.arange(1, n + 1, dtype=torch.float64, device=total.device)
        return float((total.flatten() * weights).sum())


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
