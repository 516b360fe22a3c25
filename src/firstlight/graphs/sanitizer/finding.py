"""What the sanitizer found: typed values, and the report that collects them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from firstlight.core.reason import Phase


class FindingKind(StrEnum):
    """The kinds of fault; :attr:`meaning` has each in words."""

    PADDING_READ = "padding_read"
    BEYOND_BUCKET_READ = "beyond_bucket_read"
    UNUSED_MEMORY_READ = "unused_memory_read"
    STALE_INTERMEDIATE = "stale_intermediate"
    INDEX_OUT_OF_RANGE = "index_out_of_range"
    BAD_INDEX = "bad_index"
    ROW_UNWRITTEN = "row_unwritten"
    ROW_WRITTEN_TWICE = "row_written_twice"
    PADDING_NOT_NEUTRAL = "padding_not_neutral"
    NAN_INPUT = "nan_input"
    NAN_OUTPUT = "nan_output"
    NOT_REPEATABLE = "not_repeatable"
    FOREIGN_WRITE = "foreign_write"
    MEMORY_UNWRITTEN = "memory_unwritten"
    SLOT_WRITTEN = "slot_written"
    WEIGHT_WRITTEN = "weight_written"
    STALE_ADDRESS = "stale_address"
    SCRATCH_OVERLAP = "scratch_overlap"
    WRITE_OUTSIDE = "write_outside"
    BAKED_CONSTANT = "baked_constant"
    REPLAY_DIFFERS = "replay_differs"
    HOST_READ = "host_read"
    DYNAMIC_SHAPE = "dynamic_shape"
    UNOWNED_TENSOR = "unowned_tensor"
    CAPTURE_REFUSED = "capture_refused"

    @property
    def meaning(self) -> str:
        """The fault in one sentence, as the documentation lists it."""
        return _MEANINGS[self]


_K = FindingKind
_MEANINGS = {
    _K.PADDING_READ: "A live row depends on what padding rows hold.",
    _K.BEYOND_BUCKET_READ: "A live row depends on rows of a slot beyond the bucket.",
    _K.UNUSED_MEMORY_READ: "A live row depends on KV memory outside its request's context.",
    _K.STALE_INTERMEDIATE: "A live row depends on intermediate memory that this run has not "
    "written.",
    _K.INDEX_OUT_OF_RANGE: "An operation indexes with values that nobody wrote for this batch.",
    _K.BAD_INDEX: "An index slot holds a negative, foreign or doubled index.",
    _K.ROW_UNWRITTEN: "A live row of a slot was not written in this step.",
    _K.ROW_WRITTEN_TWICE: "A row of a slot was written more than once in one step.",
    _K.PADDING_NOT_NEUTRAL: "Padding rows do not hold their slot's neutral value.",
    _K.NAN_INPUT: "A live row of a slot holds NaN that somebody wrote.",
    _K.NAN_OUTPUT: "The model itself computes NaN for a live row.",
    _K.NOT_REPEATABLE: "The same graph on the same memory gives another result.",
    _K.FOREIGN_WRITE: "KV memory that does not belong to the batch was changed.",
    _K.MEMORY_UNWRITTEN: "The keys or values of a live row were not stored.",
    _K.SLOT_WRITTEN: "The body writes into a slot, which the merge alone may write.",
    _K.WEIGHT_WRITTEN: "A weight or buffer is changed while graphs hold it as a constant.",
    _K.STALE_ADDRESS: "A graph reads memory that its owner has left.",
    _K.SCRATCH_OVERLAP: "Two intermediates that are alive together share bytes.",
    _K.WRITE_OUTSIDE: "Bytes beside a buffer, which belong to nobody, were written.",
    _K.BAKED_CONSTANT: "A value of the batch at capture became a constant of the graph.",
    _K.REPLAY_DIFFERS: "The replay of a batch is not what the body computes for it now.",
    _K.HOST_READ: "The body reads a tensor's value on the host.",
    _K.DYNAMIC_SHAPE: "The shape of a result depends on data.",
    _K.UNOWNED_TENSOR: "The body touches memory that nobody keeps alive.",
    _K.CAPTURE_REFUSED: "The body cannot be captured.",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault.

    Attributes:
        subject: the slot, pool, weight or operation at fault, e.g. ``slot input_embeds``.
        bucket: rows of the graph; None where the batch ran eager.
        op: the operation that did it or where it first shows; "" if it was no operation.
        where: ``file:line`` of the code that called the operation, "" if unknown.
        detail: one sentence with rows, pages or numbers.
    """

    kind: FindingKind
    subject: str
    phase: Phase
    bucket: int | None
    detail: str
    op: str = ""
    where: str = ""

    def __str__(self) -> str:
        at = f"at {self.where}" if self.where else ""
        by = f" [{' '.join(filter(None, (self.op, at)))}]" if self.op or at else ""
        run = f"{self.phase.value} {'eager' if self.bucket is None else self.bucket}"
        return f"{self.kind.value}: {self.subject}, {run}: {self.detail}{by}"


class Report:
    """Findings in the order in which they turned up; one that recurs is kept once, and counted.

    Args:
        not_looked_at: in words, what could not be looked at.
    """

    def __init__(self, not_looked_at: Sequence[str] = ()) -> None:
        self.not_looked_at = tuple(not_looked_at)
        self._counts: dict[Finding, int] = {}
        self._first: dict[tuple[object, ...], Finding] = {}

    def add(self, finding: Finding) -> None:
        """Collect a finding; later ones of the same kind, subject, graph and line only count."""
        key = (finding.kind, finding.subject, finding.phase, finding.bucket, finding.where)
        kept = self._first.setdefault(key, finding)
        self._counts[kept] = self._counts.get(kept, 0) + 1

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All different findings."""
        return tuple(self._first.values())

    def times(self, finding: Finding) -> int:
        """How many batches or captures showed ``finding``."""
        return self._counts.get(finding, 0)

    def clear(self) -> None:
        """Forget everything."""
        self._counts.clear()
        self._first.clear()

    def __bool__(self) -> bool:
        return bool(self._first)

    def __len__(self) -> int:
        return len(self._first)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._first.values())

    def __str__(self) -> str:
        return "\n".join(str(finding) for finding in self)
