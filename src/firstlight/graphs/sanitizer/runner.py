"""A runner that checks every batch: what :class:`GraphRunner` does, and then again under poison."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.core.reason import Decision, Reason
from firstlight.errors import CaptureError, DynamicShapeError, HostReadError, UnownedTensorError
from firstlight.graphs.backends.cuda import CudaBackend, SegmentedGraph
from firstlight.graphs.backends.tape import TapeBackend, TapeGraph
from firstlight.graphs.bucket import BucketState
from firstlight.graphs.proof.spread import dtype_limit
from firstlight.graphs.runner import BucketReport, GraphRunner
from firstlight.graphs.sanitizer.audit import (
    Fault,
    WeightVersions,
    audit,
    frozen_slots,
    stale_addresses,
)
from firstlight.graphs.sanitizer.baked import Signature, differences, other_results, signature
from firstlight.graphs.sanitizer.finding import Finding, FindingKind, Report
from firstlight.graphs.sanitizer.guard import GuardedArena
from firstlight.graphs.sanitizer.memory import (
    Footprint,
    PagedMemory,
    Snapshot,
    footprint_of_slots,
)
from firstlight.graphs.sanitizer.pieces import SegmentedReplay, slot_writes, stale_calls
from firstlight.graphs.sanitizer.poison import Poison, misplace_, poison_
from firstlight.graphs.sanitizer.replay import CheckedReplay
from firstlight.graphs.sanitizer.sites import MemorySites, Site, intermediates, slot_sites
from firstlight.graphs.sanitizer.slots import (
    changed_slots,
    check_blocks,
    check_indices,
    check_slots,
    check_table,
    heal,
    poison_slots,
    settle,
    slot_contents,
)
from firstlight.graphs.sanitizer.stepwise import Stepwise
from firstlight.graphs.sanitizer.tracker import TrackedRegistry
from firstlight.graphs.sanitizer.trial import Trial
from firstlight.graphs.sanitizer.vary import vary_slots
from firstlight.graphs.slot import Extent
from firstlight.graphs.slots import EMBEDS, FULL_SIDE

_RECORDINGS = 3  # batches of each bucket that are recorded again, to compare
_BETWEEN = 2  # graphs of other sizes that run between the two replays of a batch
_ROUNDINGS = 4
"""Of the largest output, by which replays on a GPU may differ: some sums have no order."""

_REFUSALS = {
    HostReadError: FindingKind.HOST_READ,
    DynamicShapeError: FindingKind.DYNAMIC_SHAPE,
    UnownedTensorError: FindingKind.UNOWNED_TENSOR,
}


class SanitizingRunner(GraphRunner):
    """Serves each batch as :class:`GraphRunner` would and collects what a second look finds.

    Before a batch is filled, its slots are poisoned, so that a row which nobody writes shows. After
    the batch has run, it runs once more with poison in everything that must not matter; live rows
    must not change. Then all memory is as the first run left it. A step takes several times as
    long, and the pools are copied twice.

    Args:
        report: collects the findings; may be shared by several runners.
        memory: the KV pools, by the names under which ``owned`` knows them, one entry a side;
            without it they are neither poisoned nor compared.
        arena: the slots' arena, if it has guard bands.
        poison: see :class:`Poison`.
        settings: the arguments of :class:`GraphRunner`. Give it a :class:`TrackedRegistry`, or
            rows that are written twice go unseen.
    """

    def __init__(
        self,
        *phase: Any,
        report: Report,
        memory: PagedMemory | Sequence[PagedMemory] = (),
        arena: GuardedArena | None = None,
        poison: Poison = Poison.NAN,
        **settings: Any,
    ) -> None:
        super().__init__(*phase, **settings)
        self.report = report
        self._sides = (memory,) if isinstance(memory, PagedMemory) else tuple(memory)
        self._guards = arena
        self._poison = poison
        self._batch: tuple[Extent, Extent] | None = None
        self._held: dict[str, Tensor] = {}
        self._expected: Mapping[str, Footprint] = {}
        self._replays: dict[int, Stepwise] = {}
        self._draw = random.Random(0)
        self._signatures: dict[int, Signature] = {}
        self._recorded: dict[int, int] = {}
        self._weights: WeightVersions | None = None

    def expect(self, footprint: Footprint | Mapping[str, Footprint]) -> None:
        """Say which token slots the next batch owns, from another source than the slots.

        Args:
            footprint: by the suffix of each side, see :func:`footprint_of_pages`; of the full side
                if there is only one.
        """
        if isinstance(footprint, Footprint):
            footprint = {FULL_SIDE: footprint}
        self._expected = footprint

    def capture(self, bucket: int) -> BucketReport:
        """Capture one bucket, audit the graph, and record the body again on other data.

        Raises:
            CaptureError: as for the plain runner; it is a finding, too.
        """
        try:
            report = super().capture(bucket)
        except CaptureError as error:
            kind = _REFUSALS.get(type(error), FindingKind.CAPTURE_REFUSED)
            self._collect([Fault(kind, "body", str(error), error.op, error.where)], bucket)
            raise
        if self._weights is None:
            self._weights = WeightVersions(self._owned)
        graph = self._graphs.get(bucket)
        if isinstance(graph, TapeGraph):
            checked = CheckedReplay(graph)
            self._look_at(bucket, checked, audit(checked))
        elif isinstance(graph, SegmentedGraph):
            self._look_at(bucket, SegmentedReplay(graph), slot_writes(graph))
        return report

    def _look_at(self, bucket: int, replay: Stepwise, faults: Iterable[Fault]) -> None:
        """From now on, batches of this bucket are run twice."""
        self._replays[bucket] = replay
        self._collect(frozen_slots(self._owned), bucket)
        self._collect(faults, bucket)
        self._record_twice(bucket)

    def fill(self, values: Mapping[str, Tensor | None], live: Extent, decision: Decision) -> None:
        """Poison the slots, then write the batch into them.

        Raises:
            SlotError: as for the plain runner; the slots are as they were.
        """
        before = slot_contents(self.registry)
        padded = self.extent(self._examined(decision) or decision.padded)
        poison_slots(self.registry, values, live)
        try:
            self.registry.fill(values, live, padded)
        except Exception:
            for name, saved in before.items():
                self.registry.buffer(name).copy_(saved)
            raise
        self._batch, self._held = (live, padded), before
        if isinstance(self.registry, TrackedRegistry):
            self.registry.reset_counts()

    def embeds(self, rows: int) -> Tensor:
        """The first ``rows`` of ``input_embeds``; what is written into them is counted."""
        plain = super().embeds(rows)
        if isinstance(self.registry, TrackedRegistry):
            return self.registry.track(EMBEDS, plain)
        return plain

    def run(self, decision: Decision) -> Tensor:
        """Run what the slots hold, then check it.

        Returns:
            hidden states [live tokens, hidden_size], in memory of their own.
        """
        batch, expected = self._batch, self._expected
        self._batch, self._expected = None, {}
        if batch is None or batch[0].tokens != decision.tokens:
            # Somebody wrote the slots by other means than fill(): all rows count as live.
            padded = self.extent(self._examined(decision) or decision.padded)
            batch = padded, padded
        else:
            settle(self.registry, batch[1])
            self._collect(check_slots(self.registry, *batch), self._examined(decision))
            heal(self.registry, self._held)
        return self._run_checked(decision, batch, expected)

    def _run_checked(
        self,
        decision: Decision,
        batch: tuple[Extent, Extent],
        expected: Mapping[str, Footprint],
    ) -> Tensor:
        live, bucket = batch[0], self._examined(decision)
        use = self._footprints(live, expected, bucket)
        before = Snapshot(self._owned)
        slots = slot_contents(self.registry)
        self._collect(self._addresses(bucket), bucket)
        hidden = super().run(decision).clone()
        after = Snapshot(self._owned)
        self._collect(changed_slots(self.registry, slots), bucket)
        pools = [MemorySites(side, touched, before, self._poison) for side, touched in use]
        for side_pools in pools:
            self._collect(side_pools.check_plain(), bucket)
        self._collect(self._damage(), bucket)
        if bucket is not None and bucket in self._replays:
            snapshots = (before, Snapshot(self._owned, slots=True))
            reference = hidden, after
            if decision.bucket is None:  # it ran eager, and the trials are replays
                reference = self._replayed(bucket, before, len(hidden))
            self._try(bucket, batch, reference, pools, snapshots)
            self._record_again(bucket, snapshots, reference[0])
            self._collect(self._damage(), bucket)
            snapshots[1].restore()
            after.restore()
        return hidden

    def _damage(self) -> Iterable[Fault]:
        """Guard bands of slots that were written since the last look."""
        if self._guards is not None:
            for name, what in self._guards.damage():
                yield Fault(FindingKind.WRITE_OUTSIDE, f"slot {name}", f"{what} were written")

    def _examined(self, decision: Decision) -> int | None:
        """The graph that is looked at: also one that was captured and did not serve the batch."""
        if decision.reason not in (Reason.QUARANTINED, Reason.PADDING_COST):
            return decision.bucket
        bucket = self.buckets.fitting(decision.tokens)
        return bucket if bucket in self._replays else None

    def _replayed(self, bucket: int, before: Snapshot, rows: int) -> tuple[Tensor, Snapshot]:
        before.restore()
        return self._graphs[bucket].replay()[:rows].clone(), Snapshot(self._owned)

    def _try(
        self,
        bucket: int,
        batch: tuple[Extent, Extent],
        reference: tuple[Tensor, Snapshot],
        pools: Sequence[MemorySites],
        before: tuple[Snapshot, ...],
    ) -> None:
        """Replay under poison; on trouble find out which poison makes it, and where."""
        replay = self._replays[bucket]
        hidden, after = reference
        pieces = isinstance(replay, SegmentedReplay)
        tolerance = _repeats_within(replay)
        trial = Trial(
            replay,
            hidden,
            batch[0].tokens,
            bucket,
            before,
            lambda: next(filter(None, (side.stored(after, tolerance) for side in pools)), ""),
            tolerance,
        )
        sites: list[Site] = self._others(bucket, before) if pieces else []
        fill = misplace_ if pieces else poison_
        sites += slot_sites(self.registry, *batch, self._poison, fill)
        for side in pools:
            sites += side.sites()
        sites.append(intermediates())
        trouble = trial.run(sites)
        faults: list[Fault] = []
        if trouble is None or trouble.what != "raised":
            spread = trouble is not None and trouble.what == "nan"
            for side in pools:
                faults += side.check(replay.writer_of, spread=spread)
        if trouble is not None:
            faults += trial.guilty(sites)
        elif bool(hidden.isnan().any()):
            faults += trial.own_nan()
        elif not self._recorded.get(bucket):  # once a bucket; it runs all operations twice
            faults += trial.undefined()
        self._collect(faults, bucket)

    def _others(self, bucket: int, before: Sequence[Snapshot]) -> list[Site]:
        """Graphs of other sizes that run before the replay; slots and memory are then put back.

        The first site of a trial: what it puts back would undo the others.
        """
        ready = [b for b in self._graphs if self.buckets.state(b) is BucketState.READY]
        others = [b for b in ready if b != bucket]
        chosen = self._draw.sample(others, min(_BETWEEN, len(others)))

        def run() -> None:
            for other in chosen:
                self._prepare(other)
                self._graphs[other].replay()
            for snapshot in before:
                snapshot.restore()

        what = f"graphs of {', '.join(map(str, chosen))} rows, replayed before this one"
        kind = FindingKind.STALE_INTERMEDIATE
        return [Site(kind, "graphs of other sizes", what, run)] if chosen else []

    def _footprints(
        self, live: Extent, expected: Mapping[str, Footprint], bucket: int | None
    ) -> list[tuple[PagedMemory, Footprint]]:
        """What the batch may touch of each side: as its owner says, else as the slots say."""
        found = []
        self._collect(check_blocks(self.registry, live), bucket)
        for side in self._sides:
            owned = expected.get(side.suffix)
            shown = footprint_of_slots(self.registry, live, side)
            self._collect(check_indices(self.registry, live, side, owned), bucket)
            self._collect(check_table(shown, owned, side), bucket)
            use = shown if owned is None else owned
            if use is not None:
                found.append((side, use))
        return found

    def _addresses(self, bucket: int | None) -> Iterable[Fault]:
        if self._weights is not None:
            yield from self._weights.changed()
        graph = None if bucket is None else self._graphs.get(bucket)
        named = {f"slot {name}": self.registry.buffer(name) for name in self.registry.names}
        for side in self._sides:
            named |= dict(side.pools)
        if isinstance(graph, TapeGraph):
            yield from stale_addresses(graph, self._owned, named)
        elif isinstance(graph, SegmentedGraph):
            yield from stale_calls(graph, named)

    def _record_twice(self, bucket: int) -> None:
        """Record on the contents of the capture and on others; a graph must fit both."""
        before = Snapshot(self._owned)
        first = self._signature_of(bucket)
        if first is not None:
            self._signatures[bucket] = first
            vary_slots(self.registry, self.extent(bucket), self.phase, self._plan_dummy)
            second = self._signature_of(bucket)
            if second is not None:
                self._collect(differences(first, second), bucket)
        before.restore()
        self._prepare(bucket)

    def _record_again(self, bucket: int, before: tuple[Snapshot, ...], replayed: Tensor) -> None:
        """Record a served batch: what differs from the capture is wrong in this very batch."""
        first = self._signatures.get(bucket)
        times = self._recorded.get(bucket, 0)
        if first is None or times >= _RECORDINGS:
            return
        self._recorded[bucket] = times + 1
        for snapshot in before:
            snapshot.restore()
        computed: list[Tensor] = []
        second = self._signature_of(bucket, computed)
        if second is not None:
            self._collect(differences(first, second), bucket)
            tolerance = _agrees_within(self._replays[bucket])
            self._collect(other_results(replayed, computed[0], tolerance), bucket)

    def _signature_of(self, bucket: int, results: list[Tensor] | None = None) -> Signature | None:
        """What a capture would hold now; the body's result is appended to ``results``."""
        if not isinstance(self.backend, TapeBackend | CudaBackend):
            return None
        inputs = self._inputs(bucket)

        def body() -> Tensor:
            hidden = self._body(inputs)
            if results is not None:
                results.append(hidden)
            return hidden

        try:
            recording = self.backend.recording(body, self._owned)
        except CaptureError as error:
            kind = _REFUSALS.get(type(error), FindingKind.CAPTURE_REFUSED)
            self._collect([Fault(kind, "body", str(error), error.op, error.where)], bucket)
            return None
        # Eager calls take another pool when it is resized; pieces never address one.
        moving = isinstance(self.backend, CudaBackend) and not self.backend.whole
        names = {name for side in self._sides for name in side.pools} if moving else set()
        return signature(recording, names)

    def _collect(self, faults: Iterable[Fault], bucket: int | None) -> None:
        for f in faults:
            self.report.add(Finding(f.kind, f.subject, self.phase, bucket, f.detail, f.op, f.where))


def _repeats_within(replay: Stepwise) -> float:
    """By how much two replays of the same may differ, in units of the largest output."""
    if not isinstance(replay, SegmentedReplay):
        return 0.0
    return _ROUNDINGS * torch.finfo(replay.output.dtype).eps


def _agrees_within(replay: Stepwise) -> float:
    """By how much a replay may differ from the body, run eager: as far as a proof would go."""
    return dtype_limit(replay.output.dtype) if isinstance(replay, SegmentedReplay) else 0.0
