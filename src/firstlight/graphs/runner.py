"""Runs a body for one phase, by graph or eager, over the same slots."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from firstlight.core.reason import Decision, Phase
from firstlight.errors import CaptureError, CaptureMemoryError, SlotError
from firstlight.graphs.backend import CaptureBackend, Graph, Piece
from firstlight.graphs.body import Body, BodyInputs
from firstlight.graphs.bucket import BucketState, BucketTable
from firstlight.graphs.decision import Decider, DecisionCounter
from firstlight.graphs.ownership import Ownership
from firstlight.graphs.proof import BucketProof, ProofLevel, ProofReport, Prover, Subject
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Extent
from firstlight.graphs.slots import EMBEDS, phase_extent

Progress = Callable[[int, int, int], None]


class Rehearsal(Protocol):
    """Runs a body once and takes what its capture will need; see ``CudaBackend.plan``."""

    def __call__(
        self, fn: Callable[[], torch.Tensor], /, *, owned: Ownership, label: str
    ) -> object:
        """The rehearsal."""
        ...


@dataclass(frozen=True, slots=True)
class BucketReport:
    """What one bucket took: bytes of its own, seconds of capture, calls of a replay.

    Attributes:
        proof: what the proof of the bucket found, with its own seconds; None if none was made.
    """

    bucket: int
    bytes: int
    seconds: float
    ops: int
    pieces: tuple[Piece, ...]
    proof: BucketProof | None = None


@dataclass(frozen=True, slots=True)
class BucketFailure:
    """A bucket that could not be captured, and why."""

    bucket: int
    error: str


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """The outcome of a capture of all buckets, largest first.

    Attributes:
        stopped: the first bucket failed for a reason that lies in the body, so that no other was
            tried; None if all were.
    """

    buckets: tuple[BucketReport, ...]
    failures: tuple[BucketFailure, ...]
    seconds: float
    stopped: str | None = None

    @property
    def proof(self) -> ProofReport | None:
        """The proofs made on the way; None if there were none."""
        proofs = tuple(report.proof for report in self.buckets if report.proof is not None)
        return ProofReport(proofs[0].level, proofs) if proofs else None

    @property
    def bytes(self) -> int:
        """Memory that the graphs took together, beside the slots."""
        return sum(report.bytes for report in self.buckets)

    def with_bucket(self, report: BucketReport, seconds: float) -> CaptureReport:
        """With a bucket that was captured or proven later, in ``seconds``."""
        others = [r for r in self.buckets if r.bucket != report.bucket]
        buckets = sorted([*others, report], key=lambda r: -r.bucket)
        return replace(self, buckets=tuple(buckets), seconds=self.seconds + seconds)

    def with_failure(self, failure: BucketFailure, seconds: float) -> CaptureReport:
        """With a bucket whose later capture failed, after ``seconds``."""
        failures = (*self.failures, failure)
        return replace(self, failures=failures, seconds=self.seconds + seconds)


class GraphRunner:
    """One phase of a body: buckets, slots, graphs.

    The order of one batch is :meth:`decide`, :meth:`fill`, writing the rows, :meth:`run`.

    Args:
        registry: the phase's slots, allocated.
        backend: captures the graphs.
        inputs: the body's arguments for a number of padded rows; must give views of the slots.
        owned: weights and pools that the body may touch; the slots are added to it.
        plan_dummy: writes attention metadata for a legal batch of that many rows before a capture;
            without it every row points at the sink and belongs to no request.
        counter: counts the batches run.
        prover: proves each bucket after its capture; one that fails is quarantined. None or level
            ``OFF`` admits every bucket that could be captured.
        one_row_per_request: the body gives the last row of each request, not a row per token.
        synchronise: waits for the device; called at the end of runs that are timed. None on a CPU.
    """

    def __init__(
        self,
        phase: Phase,
        *,
        registry: SlotRegistry,
        buckets: BucketTable,
        backend: CaptureBackend,
        body: Body,
        decider: Decider,
        inputs: Callable[[int], BodyInputs],
        owned: Ownership,
        plan_dummy: Callable[[int], None] | None = None,
        counter: DecisionCounter | None = None,
        prover: Prover | None = None,
        one_row_per_request: bool = False,
        synchronise: Callable[[], object] | None = None,
    ) -> None:
        if buckets.largest > registry.capacity.tokens:
            raise SlotError(
                f"the largest bucket has {buckets.largest} rows, the slots {registry.capacity}"
            )
        self.phase = phase
        self.registry = registry
        self.buckets = buckets
        self.backend = backend
        self.counter = DecisionCounter() if counter is None else counter
        self._body = body
        self._decider = decider
        self._inputs = inputs
        self._owned = owned
        self._plan_dummy = plan_dummy
        self._prover = prover
        self._one_row_per_request = one_row_per_request
        self._synchronise = synchronise
        self._graphs: dict[int, Graph] = {}
        registry.own(owned)

    @property
    def graphs(self) -> Mapping[int, Graph]:
        """The captured graphs by bucket."""
        return self._graphs

    def capture_all(
        self, progress: Progress | None = None, *, now: Collection[int] | None = None
    ) -> CaptureReport:
        """Capture every waiting bucket, largest first.

        A bucket that fails stays out, with its message as the reason. If the very first one fails
        because of what the body does, so would all others: none of them is tried.

        Args:
            progress: called with (buckets done, buckets in all, bucket that comes next; 0 at the
                end).
            now: capture and prove these alone. Beside them the largest one is captured, since all
                others fit into its memory, and not proven. The rest is :attr:`late`. None is all.
        """
        started = time.perf_counter()
        waiting = [
            b for b in reversed(self.buckets.sizes) if self.buckets.state(b) is BucketState.WAITING
        ]
        if now is not None:
            waiting = [b for b in waiting if b in now or b == waiting[0]]
        reports: list[BucketReport] = []
        failures: list[BucketFailure] = []
        stopped: str | None = None
        for done, bucket in enumerate(waiting):
            if progress is not None:
                progress(done, len(waiting), bucket)
            if stopped is None:
                proven = now is None or bucket in now
                try:
                    reports.append((self.capture if proven else self._record)(bucket))
                    continue
                except (CaptureError, RuntimeError, MemoryError) as error:
                    failures.append(BucketFailure(bucket, str(error)))
                    room = isinstance(error, CaptureMemoryError)  # a smaller bucket may fit
                    if isinstance(error, CaptureError) and not room and not self._graphs:
                        stopped = f"not tried, because the bucket of {bucket} rows failed: {error}"
        if stopped is not None:
            for bucket in self.late:
                self.buckets.mark(bucket, BucketState.FAILED, stopped)
        if progress is not None:
            progress(len(waiting), len(waiting), 0)
        proofs = self._prove_order(self._prover, [r.proof for r in reports if r.proof is not None])
        reports = [replace(r, proof=proofs.get(r.bucket)) for r in reports]
        if self._prover is not None:
            self._prover.forget(self.phase)
        seconds = time.perf_counter() - started
        return CaptureReport(tuple(reports), tuple(failures), seconds, stopped)

    def capture(self, bucket: int) -> BucketReport:
        """Capture one bucket, prove it, and admit it or quarantine it.

        Raises:
            CaptureError: the body cannot be captured; the bucket is marked as failed.
        """
        report = self._record(bucket)
        return replace(report, proof=self._admit(bucket, self._prover))

    @property
    def late(self) -> tuple[int, ...]:
        """Buckets that serve nobody yet, because they are not captured or not proven; ascending."""
        open_states = (BucketState.WAITING, BucketState.UNPROVEN)
        return tuple(b for b in self.buckets.sizes if self.buckets.state(b) in open_states)

    def complete(self, bucket: int) -> BucketReport:
        """Capture a late bucket if it was not, and prove it; between batches.

        Raises:
            CaptureError: as for :meth:`capture`.
        """
        if self.buckets.state(bucket) is BucketState.WAITING:
            report = self.capture(bucket)
        else:
            report = replace(self._report(bucket), proof=self._admit(bucket, self._prover))
        if self._prover is not None:
            self._prover.forget(self.phase)
        return report

    def _record(self, bucket: int) -> BucketReport:
        """Capture one bucket; it serves nobody before it is admitted."""
        try:
            self._prepare(bucket)
            inputs = self._inputs(bucket)
            graph = self.backend.capture(
                lambda: self._body(inputs), owned=self._owned, label=f"{self.phase.value} {bucket}"
            )
        except Exception as error:
            self.buckets.mark(bucket, BucketState.FAILED, str(error))
            raise
        self._graphs[bucket] = graph
        self.buckets.mark(bucket, BucketState.UNPROVEN)
        return self._report(bucket)

    def _report(self, bucket: int) -> BucketReport:
        graph = self._graphs[bucket]
        ops = sum(piece.ops for piece in graph.pieces)
        return BucketReport(bucket, graph.bytes, graph.seconds, ops, graph.pieces)

    def prove(
        self, prover: Prover, progress: Callable[[int, int, int], None] | None = None
    ) -> ProofReport:
        """Prove every captured bucket, largest first; the verdicts replace earlier ones.

        Args:
            progress: as for :meth:`capture_all`.
        """
        captured = sorted(self._graphs, reverse=True)
        proofs: list[BucketProof] = []
        for done, bucket in enumerate(captured):
            if progress is not None:
                progress(done, len(captured), bucket)
            proof = self._admit(bucket, prover)
            if proof is not None:
                proofs.append(proof)
        if progress is not None:
            progress(len(captured), len(captured), 0)
        prover.forget(self.phase)
        return ProofReport(prover.level, tuple(self._prove_order(prover, proofs).values()))

    def subject(self, bucket: int) -> Subject:
        """A captured bucket as proofs see it; KeyError if it is not captured."""
        sizes = self.buckets.sizes
        index = sizes.index(bucket)
        return Subject(
            self.phase,
            bucket,
            previous=sizes[index - 1] if index else 0,
            registry=self.registry,
            inputs=self._inputs,
            body=self._body,
            replay=self._graphs[bucket].replay,
            one_row_per_request=self._one_row_per_request,
        )

    def _admit(self, bucket: int, prover: Prover | None) -> BucketProof | None:
        """Nothing is ready before it is proven, where proofs are wanted."""
        if prover is None or prover.level is ProofLevel.OFF:
            self.buckets.mark(bucket, BucketState.READY)
            return None
        smallest = self.phase is Phase.PREFILL and bucket == self.buckets.sizes[0]
        proof = prover.prove(self.subject(bucket), declarations=smallest)
        if proof.passed:
            self.buckets.mark(bucket, BucketState.READY)
        else:
            self.quarantine(bucket, proof.summary)
        return proof

    def _prove_order(
        self, prover: Prover | None, proofs: list[BucketProof]
    ) -> dict[int, BucketProof]:
        """At the full level, what graphs do to each other once all are captured."""
        found = {proof.bucket: proof for proof in proofs}
        if prover is None or prover.level is not ProofLevel.FULL:
            return found
        passed = [self.subject(proof.bucket) for proof in proofs if proof.passed]
        for bucket, finding in prover.prove_order(passed).items():
            found[bucket] = replace(found[bucket], findings=(finding,))
            self.quarantine(bucket, found[bucket].summary)
        return found

    def quarantine(self, bucket: int, why: str) -> None:
        """Take a captured bucket out of use; its memory stays, since addresses may be shared."""
        self.buckets.mark(bucket, BucketState.QUARANTINED, why)

    def extent(self, rows: int) -> Extent:
        """The padded extent of ``rows`` in this phase."""
        return phase_extent(self.phase, rows, self.registry.capacity)

    def decide(self, live: Extent, max_context: int) -> Decision:
        """How a batch will run; the one place where a bucket is chosen."""
        return self._decider.decide(live, max_context)

    def fill(
        self, values: Mapping[str, torch.Tensor | None], live: Extent, decision: Decision
    ) -> None:
        """Write a batch into the slots, padded for ``decision``.

        Raises:
            SlotError: a value does not fit its slot, or the batch exceeds the slots.
        """
        self.registry.fill(values, live, self.extent(decision.padded))

    def embeds(self, rows: int) -> torch.Tensor:
        """The first ``rows`` of ``input_embeds`` [rows, width], for the merge to write."""
        return self.registry.view(EMBEDS, self.extent(rows))

    def run(self, decision: Decision) -> torch.Tensor:
        """Run what the slots hold.

        Returns:
            hidden states [live tokens, hidden_size]; the memory may be reused by the next run.
        """
        self.counter.add(decision)
        if decision.bucket is None:
            with torch.no_grad():
                hidden = self._body(self._inputs(decision.tokens))
        else:
            hidden = self._graphs[decision.bucket].replay()
        return hidden[: decision.tokens]

    def dry_run(self, rows: int, bucket: int | None) -> Callable[[], torch.Tensor]:
        """A call that runs a neutral batch, for timing; it writes to the sink alone.

        The slots are made neutral now, so the call is good until something else fills them.

        Args:
            rows: live rows.
            bucket: the captured graph to replay, of at least ``rows``; None runs eager.
        """
        self._prepare(rows if bucket is None else bucket)

        def eager() -> torch.Tensor:
            with torch.inference_mode():  # as in a step
                return self._body(self._inputs(rows))

        run = eager if bucket is None else self._graphs[bucket].replay
        wait = self._synchronise
        if wait is None:
            return run

        def to_the_end() -> torch.Tensor:
            output = run()
            wait()
            return output

        return to_the_end

    def rehearse(self, rehearsal: Rehearsal) -> None:
        """Show the largest waiting bucket to a backend, so that its memory is known beforehand.

        Raises:
            CaptureError: as a capture would.
        """
        waiting = [b for b in self.buckets.sizes if self.buckets.state(b) is BucketState.WAITING]
        if waiting:
            self._prepare(waiting[-1])
            inputs = self._inputs(waiting[-1])
            label = f"{self.phase.value} {waiting[-1]}"
            rehearsal(lambda: self._body(inputs), owned=self._owned, label=label)

    def _prepare(self, bucket: int) -> None:
        """Legal contents for the run that a capture makes: neutral, index slots at the sink."""
        self.registry.neutralise(self.extent(bucket))
        if self._plan_dummy is not None:
            self._plan_dummy(bucket)


def dummy_lengths(tokens: int, max_length: int, max_requests: int) -> list[int]:
    """``tokens`` split into the fewest requests of at most ``max_length``.

    Raises:
        SlotError: they do not fit ``max_requests``.
    """
    lengths = [max_length] * (tokens // max_length)
    if tokens % max_length:
        lengths.append(tokens % max_length)
    if len(lengths) > max_requests:
        raise SlotError(
            f"{tokens} tokens in requests of at most {max_length} need {len(lengths)} requests; "
            f"the slots hold {max_requests}"
        )
    return lengths
