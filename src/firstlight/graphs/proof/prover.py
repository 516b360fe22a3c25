"""Proves captured buckets: the levels, and the order of the checks."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from firstlight.contract import InputContract
from firstlight.core.reason import Phase
from firstlight.errors import FirstlightError
from firstlight.graphs.proof import equality
from firstlight.graphs.proof.agree import Reference, check_agreement
from firstlight.graphs.proof.bench import Bench, Outcome, Subject
from firstlight.graphs.proof.cases import Case, Limits, Media, mixed_case, plan_cases
from firstlight.graphs.proof.churn import churn, replay_order
from firstlight.graphs.proof.compare import difference, largest
from firstlight.graphs.proof.contents import Batch, Contents
from firstlight.graphs.proof.inputs import (
    changes,
    check_padding,
    check_unseen,
    is_read,
    leave_stale,
)
from firstlight.graphs.proof.memory import ProofMemory
from firstlight.graphs.proof.order import BLOCK_MATES, check_order
from firstlight.graphs.proof.policy import check_fill
from firstlight.graphs.proof.report import BucketProof, Finding, ProofLevel, unique, unread_text
from firstlight.graphs.proof.sampled import check_windows, poisoned_replay
from firstlight.graphs.proof.spread import Spread, dtype_limit, eager_spread
from firstlight.graphs.proof.visible import unseen, with_unseen_changed
from firstlight.graphs.slots import EMBEDS

_ALONE = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 1e-1}
_PADDING = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 1e-2, torch.bfloat16: 5e-2}


_TWO_CHUNKS = "two chunks"
EXACT_ROWS = 16
"""Up to this bucket an eager run at its shape is cheap against its capture, also at `QUICK`."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What may differ.

    Attributes:
        replay: largest absolute difference between a replay and eager at the same shape. 0 on a
            CPU: the same kernels run on the same shapes. None: measured for each bucket, see
            :mod:`firstlight.graphs.proof.spread`.
        alone: largest difference between a batch's rows and the same request run alone and
            unpadded, in units of the largest output. Other shapes sum in another order, so this
            cannot be 0; a lost or foreign row is of order 1. None: by dtype.
        padding: the same between replays whose padding differs. 0 would be right where each row is
            computed for itself; experts take rows together, padding included, and round by how
            many they get. None: by dtype.
    """

    replay: float | None = 0.0
    alone: float | None = None
    padding: float | None = None

    def of_alone(self, dtype: torch.dtype) -> float:
        """:attr:`alone` for rows of ``dtype``."""
        return _ALONE.get(dtype, 1e-1) if self.alone is None else self.alone

    def of_padding(self, dtype: torch.dtype) -> float:
        """:attr:`padding` for rows of ``dtype``."""
        return _PADDING.get(dtype, 5e-2) if self.padding is None else self.padding


@dataclass(slots=True)
class _Tally:
    """What the checks of one bucket add up to."""

    cases: int = 0
    worst: float = 0.0
    worst_alone: float | None = None
    findings: list[Finding] = field(default_factory=list)
    unread: list[Finding] = field(default_factory=list)
    read: set[str] = field(default_factory=set)
    around: Mapping[str, Tensor] = field(default_factory=dict)
    """Sums over the state that is not watched, before all cases; empty if it is not looked at."""

    def alone(self, gap: float) -> None:
        self.worst_alone = max(self.worst_alone or 0.0, gap)


class Prover:
    """Compares replays with eager runs of the same body on the same slots and memory.

    Args:
        memory: the state that the body keeps between batches.
        plane_limits: exclusive upper bound of each integer plane; 2 for those not named.
        seed: of all contents; equal seeds give equal proofs.
    """

    def __init__(
        self,
        contract: InputContract,
        memory: ProofMemory,
        *,
        level: ProofLevel = ProofLevel.QUICK,
        tolerance: Tolerance | None = None,
        plane_limits: Mapping[str, int] | None = None,
        seed: int = 0,
    ) -> None:
        self.level = level
        self._contract = contract
        self._memory = memory
        self._tolerance = Tolerance() if tolerance is None else tolerance
        self._plane_limits = plane_limits
        self._seed = seed
        self._references: dict[Phase, Reference] = {}
        self._spreads: dict[tuple[Phase, int], Spread] = {}

    def prove(self, subject: Subject, *, declarations: bool = True) -> BucketProof:
        """Check one bucket; slots and memory are afterwards as they were.

        Args:
            declarations: at the quick level, also check that the model reads each declared input.
                It is the model's own eager run that shows it, so one bucket is enough.
        """
        began, tally = time.perf_counter(), _Tally()
        reference = self._references.get(subject.phase)
        agrees = (
            self.level is ProofLevel.QUICK
            and not declarations
            and reference is not None
            and reference.bucket > subject.bucket
            and self._agree(subject, reference, tally)
        )
        if not agrees:
            self._check(subject, tally, declarations=declarations)
        return BucketProof(
            subject.bucket, self.level, tally.cases, tally.worst, tally.worst_alone,
            time.perf_counter() - began, tuple(tally.findings), unique(tally.unread),
            frozenset(tally.read),
        )  # fmt: skip

    def _check(self, subject: Subject, tally: _Tally, *, declarations: bool) -> None:
        """All cases of the level, against eager runs."""
        limits = subject.limits(self._memory)
        cases = plan_cases(limits, self.level)
        if not cases:
            tally.findings.append(_no_batch(limits))
        with self._bench(subject) as bench:
            bench.lend(self._loan(limits, cases), limits.guards)
            full = self.level is ProofLevel.FULL
            tally.around = bench.sums() if full else {}
            for number, case in enumerate(cases):
                with _findings_of(case.name, tally):
                    self._case(bench, case, number, tally, declarations=declarations or full)
            if full:
                with _findings_of(_TWO_CHUNKS, tally):
                    self._chunks(bench, limits, tally)
                tally.findings += _foreign_writes(tally, bench)

    def _agree(self, subject: Subject, reference: Reference, tally: _Tally) -> bool:
        """One replay against a larger bucket's; False if there is no common batch.

        Where they differ, the bucket is checked against eager runs too, which says by what.
        """
        n = min(max(subject.previous + 1, subject.bucket - 1), reference.batch.live.tokens)
        batch = reference.first(n)
        if batch is None:
            return False
        findings: list[Finding] = []
        with self._bench(subject) as bench:
            if not bench.borrow(reference, batch):
                return False
            with _findings_of("mixed", tally):
                leave_stale(bench)
                findings += check_fill(bench, batch, "mixed")
                masks = unseen(bench, batch)
                bench.before = with_unseen_changed(bench, bench.before, masks, bench.seed)
                found = poisoned_replay(bench, batch)
                tolerance = self._tolerance.of_alone(subject.registry.spec(EMBEDS).dtype)
                wrong, gap = check_agreement(bench, reference, batch, found, "mixed", tolerance)
                tally.alone(gap)
                findings += [*wrong, *equality.check_untouched(bench, batch, found, "mixed")]
        tally.findings += findings
        tally.cases += 1
        if tally.findings:
            self._check(subject, tally, declarations=False)
        return True

    def prove_order(self, subjects: Sequence[Subject]) -> dict[int, Finding]:
        """Replay all buckets in shuffled order; finds graphs that spoil each other's memory.

        Between replays other memory comes and goes, so that what nobody holds is lost.

        Returns:
            a finding for each bucket whose replay then differs from its eager run.
        """
        expected: dict[int, Outcome] = {}
        by_bucket = {subject.bucket: subject for subject in subjects}
        for subject in subjects:
            outcome = self._once(subject, eager=True)
            if outcome is not None:
                expected[subject.bucket] = outcome
        found: dict[int, Finding] = {}
        previous = 0
        gc.collect()  # once: what is held by cycles alone is let go, and a collection is slow
        for bucket in replay_order(list(expected), self._seed):
            subject = by_bucket[bucket]
            churn(subject.registry.buffer(EMBEDS).device)
            outcome = self._once(subject, eager=False)
            assert outcome is not None
            gap = difference(outcome.hidden, expected[bucket].hidden, self._allowed(subject))
            if gap is not None and bucket not in found:
                where = f"output row {gap.first}, after a replay of the bucket of {previous} rows"
                compared = f"{equality.REPLAY_EAGER}, all buckets in shuffled order"
                found[bucket] = Finding("mixed", compared, where, gap.size)
            previous = bucket
        return found

    def forget(self, phase: Phase) -> None:
        """Drop what buckets of a phase were compared with; it holds a copy of their memory."""
        self._references.pop(phase, None)

    def _bench(self, subject: Subject) -> Bench:
        contents = Contents(
            self._contract, subject.registry, self._memory.max_context, self._plane_limits
        )
        return Bench(subject, self._memory, contents, self._seed + subject.bucket)

    def _loan(self, limits: Limits, cases: Sequence[Case]) -> int:
        """Units for the largest case, the guards, and some more that other places can be tried."""
        most = max((limits.units(case.requests) for case in cases), default=0)
        return min(most + limits.guards + 2, limits.free_units)

    def _once(self, subject: Subject, *, eager: bool) -> Outcome | None:
        """One run of the mixed case; None if there is no legal batch."""
        limits = subject.limits(self._memory)
        case = mixed_case(limits)
        if case is None:
            return None
        with self._bench(subject) as bench:
            bench.lend(self._loan(limits, [case]), limits.guards)
            batch = bench.contents.batch(case, bench.place(case), bench.seed)
            return bench.eager(batch) if eager else bench.replay(batch)

    def _case(
        self, bench: Bench, case: Case, number: int, tally: _Tally, *, declarations: bool
    ) -> None:
        """One batch: the slots after a fill, then replay against eager."""
        batch = bench.contents.batch(case, bench.place(case), bench.seed + number)
        dtype = bench.subject.registry.spec(EMBEDS).dtype
        leave_stale(bench)
        tally.findings += check_fill(bench, batch, case.name)
        tally.cases += 1
        if self.level is ProofLevel.QUICK and bench.subject.bucket > EXACT_ROWS:
            found = poisoned_replay(bench, batch)
            wrong, gap = check_windows(
                bench, batch, found, case.name, self._tolerance.of_alone(dtype)
            )
            tally.findings += [*wrong, *equality.check_untouched(bench, batch, found, case.name)]
            tally.alone(gap)
            self._keep(bench, batch, found, tally)
            if wrong:  # where it is not equal, say exactly by what
                self._exact(bench, case, batch, tally, declarations=True, first=True)
            return
        found = self._exact(bench, case, batch, tally, declarations, first=number == 0)
        self._keep(bench, batch, found, tally)
        if self.level is ProofLevel.FULL:
            wrong, gap = equality.check_alone(
                bench, batch, found, case.name, self._tolerance.of_alone(dtype)
            )
            tally.findings += wrong
            tally.alone(gap)

    def _keep(self, bench: Bench, batch: Batch, found: Outcome, tally: _Tally) -> None:
        """Smaller buckets will be compared with this one, if it is right."""
        phase, bucket = bench.subject.phase, bench.subject.bucket
        known = self._references.get(phase)
        quick = self.level is ProofLevel.QUICK
        if quick and not tally.findings and (known is None or known.bucket < bucket):
            self._references[phase] = Reference(
                bucket, batch, found, tuple(bench.units), tuple(bench.watched), bench.before
            )

    def _exact(
        self, bench: Bench, case: Case, batch: Batch, tally: _Tally, declarations: bool, first: bool
    ) -> Outcome:
        """Replay against eager at the same shape; for the first batch also input by input."""
        expected = bench.eager(batch)
        tally.findings += self._measure(bench, batch, case.name)
        allowed = self._allowed(bench.subject)
        found = bench.replay(batch)
        tally.worst = max(tally.worst, largest(found.hidden, expected.hidden))
        different = equality.compare_runs(bench, batch, found, expected, case.name, allowed)
        tally.findings += different
        tally.findings += equality.check_untouched(bench, batch, found, case.name)
        if first and (declarations or different):
            self._inputs(bench, case, batch, (found, expected), tally)
        if first:
            dtype = bench.subject.registry.spec(EMBEDS).dtype
            tolerance = self._tolerance.of_padding(dtype)
            together = self.level is not ProofLevel.FULL
            tally.findings += check_padding(
                bench, batch, found, case.name, tolerance, together=together
            )
            # Padding that lands in memory of nobody writes the same at every run, but for this one.
            tally.findings += _foreign_writes(tally, bench)
        if first or self.level is ProofLevel.FULL:
            self._reach(bench, batch, found, case.name, tally)
        return found

    def _measure(self, bench: Bench, batch: Batch, name: str) -> list[Finding]:
        """Where the tolerance is to be measured, how far eager runs lie apart; once a bucket."""
        key = (bench.subject.phase, bench.subject.bucket)
        if self._tolerance.replay is not None or key in self._spreads:
            return []
        spread = self._spreads[key] = eager_spread(bench, batch)
        limit = dtype_limit(bench.subject.registry.spec(EMBEDS).dtype)
        if spread.relative <= limit:
            return []
        shapes = ", ".join(map(str, spread.shapes))
        where = f"eager runs at {shapes} rows differ by {spread.relative:g} of the largest output, "
        where += f"more than {limit:g}: too far apart to compare a replay with"
        return [Finding(name, "eager runs at other shapes", where, spread.size)]

    def _allowed(self, subject: Subject) -> float:
        """What a replay of the bucket may differ by, absolute."""
        if self._tolerance.replay is not None:
            return self._tolerance.replay
        spread = self._spreads.get((subject.phase, subject.bucket))
        return 0.0 if spread is None else spread.tolerance

    def _reach(self, bench: Bench, batch: Batch, found: Outcome, name: str, tally: _Tally) -> None:
        """What rows see: of memory nothing that is not theirs, of each other nothing later."""
        dtype = bench.subject.registry.spec(EMBEDS).dtype
        tolerance = self._tolerance.of_padding(dtype)
        tally.findings += check_unseen(bench, batch, found, name, tolerance)
        wrong, blind, looked = check_order(bench, batch, found, name, tolerance)
        tally.findings += wrong
        if blind is not None:
            tally.unread.append(blind)
        elif looked:
            tally.read.add(BLOCK_MATES)

    def _inputs(
        self,
        bench: Bench,
        case: Case,
        batch: Batch,
        base: tuple[Outcome, Outcome],
        tally: _Tally,
    ) -> None:
        """Change each input alone: eager must react, and the replay as eager does."""
        found, expected = base
        replays = self.level is ProofLevel.FULL or bool(tally.findings)
        for change in changes(bench, case, batch, places=replays):
            eager = bench.eager(change.batch, change.state)
            read = is_read(expected, eager, stored=change.stored)
            if read:
                tally.read.add(change.what)
            else:
                compared = "eager runs before and after a change of this input alone"
                tally.unread.append(Finding(case.name, compared, unread_text(change.what)))
            if not replays:
                continue
            replay = bench.replay(change.batch, change.state)
            gap = difference(replay.hidden, eager.hidden, self._allowed(bench.subject))
            if gap is not None:
                still = read and not is_read(found, replay, stored=change.stored)
                where = f"{change.what}: " + (
                    "eager's output changes with it, the replay's does not"
                    if still
                    else f"output row {gap.first} is the first of {gap.rows} to differ"
                )
                compared = "replay and eager after a change of one input"
                tally.findings.append(Finding(case.name, compared, where, gap.size, still))

    def _chunks(self, bench: Bench, limits: Limits, tally: _Tally) -> None:
        case = _one_request(limits)
        if case is None or not bench.before:
            return
        batch = bench.contents.batch(case, bench.place(case), bench.seed)
        dtype = bench.subject.registry.spec(EMBEDS).dtype
        wrong, worst = equality.check_chunks(
            bench, batch, bench.place(case, turn=2), case.name, self._tolerance.of_alone(dtype)
        )
        tally.cases += 1
        tally.findings += wrong
        tally.alone(worst)


@contextmanager
def _findings_of(name: str, tally: _Tally) -> Iterator[None]:
    """What a run raises is a finding about its bucket: nothing that serves may raise there."""
    try:
        yield
    except (FirstlightError, RuntimeError, ValueError, LookupError) as error:
        where = f"raised {type(error).__name__}: {' '.join(str(error).split())}"
        tally.findings.append(Finding(name, equality.REPLAY_EAGER, where))


def _one_request(limits: Limits) -> Case | None:
    """A request from its first token on that can be cut in two; decode never computes two rows."""
    size = min(
        limits.bucket, limits.max_context, (limits.free_units - limits.guards) * limits.unit_tokens
    )
    case = Case(_TWO_CHUNKS, ((0, size),), Media.CUT, scattered=True)
    prefill = limits.phase is Phase.PREFILL
    return case if prefill and size > 1 and limits.allow(case.requests) else None


def _no_batch(limits: Limits) -> Finding:
    where = (
        f"no batch of {limits.previous + 1} to {limits.bucket} rows fits {limits.free_units} free "
        f"units of {limits.unit_tokens} tokens, {limits.max_requests} requests and a context of "
        f"{limits.max_context}"
    )
    return Finding("none", "nothing", where)


def _foreign_writes(tally: _Tally, bench: Bench) -> list[Finding]:
    """Memory that was not even lent must be as it was; said once."""
    if not tally.around:
        return []
    changed = bench.changed_outside(tally.around)
    if changed is None:
        return []
    tally.around = {}
    where = f"{changed}: units outside of every batch were written"
    return [Finding("all", "memory of nobody, before and after all cases", where)]
