"""What a proof found: per bucket, and for a whole runner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class ProofLevel(StrEnum):
    """How much is proven of each bucket before it is admitted.

    ``QUICK``: one batch (a decoded row beside chunks, a cached prefix that requests share and that
    reaches beyond every window, scattered units, media blocks, cut media spans) with garbage in all
    padding and in memory that no row may see. The largest bucket is checked against eager runs: bit
    for bit up to 16 rows, by windows of its rows beyond (:mod:`firstlight.graphs.proof.sampled`),
    since a run at its shape would cost as much as its capture. Smaller buckets replay the first
    rows of that batch and must agree with it (:mod:`firstlight.graphs.proof.agree`). The smallest
    prefill bucket is compared with eager bit for bit where it has at most 16 rows, and shows that
    the model reads each input it declares.

    ``FULL``: every case of :mod:`firstlight.graphs.proof.cases` on every bucket, bit for bit, each
    compared with its requests run alone too; later rows, and what no row may see, changed without
    effect; every input changed alone; one request in two chunks; all buckets replayed in shuffled
    order.
    """

    OFF = "off"
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        case: the batch that showed it.
        compared: the two things that should have been equal, or different.
        where: first differing row, segment, plane, position row or state unit.
        size: the largest absolute difference.
        names_input: it says which input is lost, and so more than a row number does.
    """

    case: str
    compared: str
    where: str
    size: float = 0.0
    names_input: bool = False

    def __str__(self) -> str:
        size = f", by up to {self.size:.3g}" if self.size else ""
        return f"{self.compared}: {self.where}{size} (case: {self.case})"


@dataclass(frozen=True, slots=True)
class BucketProof:
    """The proof of one bucket.

    Attributes:
        cases: batches that were compared.
        worst: the largest difference between a replay and eager at the same shape; 0 on a CPU.
        worst_alone: the largest difference between a replay and its requests run alone, in units
            of the largest output; None if that was not compared.
        findings: why the bucket must not serve; empty if it passed.
        unread: declared inputs that the model's own eager run did not react to here.
        read: the names of those that it did react to.
    """

    bucket: int
    level: ProofLevel
    cases: int
    worst: float
    worst_alone: float | None
    seconds: float
    findings: tuple[Finding, ...] = ()
    unread: tuple[Finding, ...] = ()
    read: frozenset[str] = frozenset()

    @property
    def passed(self) -> bool:
        """Whether the bucket may serve."""
        return not self.findings

    @property
    def summary(self) -> str:
        """One sentence: the finding that says most, and how many more there are."""
        if self.passed:
            return "1 case passed" if self.cases == 1 else f"{self.cases} cases passed"
        more = len(self.findings) - 1
        best = max(self.findings, key=lambda finding: finding.names_input)
        return str(best) + (f"; and {more} more" if more else "")


@dataclass(frozen=True, slots=True)
class ProofReport:
    """The proofs of one phase's buckets, in the order in which they were made."""

    level: ProofLevel
    buckets: tuple[BucketProof, ...]

    @property
    def seconds(self) -> float:
        """Seconds of all proofs."""
        return sum(proof.seconds for proof in self.buckets)

    @property
    def failed(self) -> tuple[BucketProof, ...]:
        """Proofs with a finding."""
        return tuple(proof for proof in self.buckets if not proof.passed)

    @property
    def unread(self) -> tuple[Finding, ...]:
        """Declared inputs without effect in any bucket, each once.

        In one batch an effect may be lost in rounding; what is read shows in some batch.
        """
        read = frozenset().union(*(proof.read for proof in self.buckets))
        found = unique(finding for proof in self.buckets for finding in proof.unread)
        return tuple(f for f in found if not any(f.where == unread_text(name) for name in read))


def unread_text(name: str) -> str:
    """What a finding says of an input that nothing reads."""
    return f"{name} is declared, but no output depends on it"


def unique(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings without those that say the same of another bucket."""
    first: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        first.setdefault((finding.compared, finding.where), finding)
    return tuple(first.values())
