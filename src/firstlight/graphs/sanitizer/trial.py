"""Trial runs: replay with some sites poisoned, compare the live rows, find the site and the op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from firstlight.graphs.sanitizer.audit import Fault
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.memory import Snapshot, compact
from firstlight.graphs.sanitizer.poison import bits, far_apart
from firstlight.graphs.sanitizer.sites import Site, intermediates
from firstlight.graphs.sanitizer.stepwise import Stage, Stepwise, Watch
from firstlight.graphs.sanitizer.trouble import Trouble


@dataclass(frozen=True, slots=True)
class Trial:
    """One batch in the slots, to be replayed under different poisons.

    Attributes:
        expected: the live rows of the unpoisoned replay: one a token, or one a request.
        live, padded: tokens of the batch and of the graph.
        before: pools and slots before that replay; restored for each trial.
        stored: says how the keys and values that the batch stored differ from that replay's; ""
            if they do not. Of a long prompt most rows are seen by this alone.
        tolerance: by how much live rows may differ, in units of the largest; 0 compares bits.
    """

    replay: Stepwise
    expected: Tensor
    live: int
    padded: int
    before: Sequence[Snapshot]
    stored: Callable[[], str]
    tolerance: float = 0.0

    def run(self, sites: Sequence[Site]) -> Trouble | None:
        """Replay with ``sites`` poisoned; what differs from the unpoisoned replay."""
        raised = self._replay(sites)
        if raised is not None and raised.what == "raised":
            return raised
        got = self.replay.output[: len(self.expected)]
        nan = got.isnan() & ~self.expected.isnan()
        if bool(nan.any()):
            return Trouble("nan", f"NaN in live rows {_rows(nan)}")
        differs = far_apart(got, self.expected, self.tolerance)
        if bool(differs.any()):
            most = float((got - self.expected).abs().max())
            return Trouble("changed", f"live rows {_rows(differs)} change by up to {most:.3g}")
        stored = self.stored()
        return Trouble("changed", stored) if stored else raised

    def guilty(self, sites: Sequence[Site]) -> Iterator[Fault]:
        """Faults of the sites that make trouble on their own."""
        alone = self.run([])
        if alone is not None:
            op, where = self._first_op([])
            detail = f"without any poison: {alone.detail}"
            yield Fault(FindingKind.NOT_REPEATABLE, "graph", detail, alone.op or op, where)
            return
        found = False
        for site in sites:
            trouble = self.run([site])
            if trouble is not None:
                found = True
                yield self._fault(site, trouble)
        if not found:
            detail = "several of padding, memory and intermediates matter only together"
            yield Fault(FindingKind.PADDING_READ, "slots", detail, *self._first_op(sites))

    def own_nan(self) -> Iterator[Fault]:
        """The first operation that gives a live row NaN without any poison."""
        found: list[Stage] = []

        def look(step: int) -> None:
            parts = (
                live_parts(tensor, self.live, self.padded)
                for tensor in self.replay.results(step)
                if tensor.dtype.is_floating_point
            )
            if not found and any(all(bool(p.isnan().any()) for p in given) for given in parts):
                found.append(self.replay.stages[step])

        self._replay([], look)
        by = (found[0].name, found[0].where) if found else ("", "")
        detail = f"live rows {_rows(self.expected.isnan())} are NaN without any poison"
        yield Fault(FindingKind.NAN_OUTPUT, "body", detail, *by)

    def undefined(self) -> Iterator[Fault]:
        """The first operation that has, in any row, dead ones too, what an earlier run left.

        Such rows reach nobody in this batch; they do as soon as something mixes rows.
        """
        before: list[list[int]] = []
        self._replay([], lambda step: before.append(self._wholes(step)))
        found: list[Stage] = []

        def compare(step: int) -> None:
            if not found and self._wholes(step) != before[step]:
                found.append(self.replay.stages[step])

        self._replay([intermediates()], compare)
        if found:
            detail = "rows that belong to no request are read or left as an earlier run left them"
            kind, op = FindingKind.STALE_INTERMEDIATE, found[0]
            yield Fault(kind, "rows of no request", detail, op.name, op.where)

    def _wholes(self, step: int) -> list[int]:
        return [_digest(tensor) for tensor in self.replay.results(step)]

    def _fault(self, site: Site, trouble: Trouble) -> Fault:
        kind, op, where = site.kind, trouble.op, trouble.where
        if trouble.what == "raised":
            kind = FindingKind.INDEX_OUT_OF_RANGE
        elif trouble.what == "outside":
            kind = FindingKind.WRITE_OUTSIDE
        else:
            op, where = self._first_op([site])
        return Fault(kind, site.subject, f"{site.detail}: {trouble.detail}", op, where)

    def _replay(self, sites: Sequence[Site], watch: Watch | None = None) -> Trouble | None:
        for snapshot in self.before:
            snapshot.restore()
        for site in sites:
            if site.apply is not None:
                site.apply()
        return self.replay.run(poison=any(s.apply is None for s in sites), watch=watch)

    def _first_op(self, sites: Sequence[Site]) -> tuple[str, str]:
        """Name and line of the first operation of the chain through which the poison got out."""
        clean: list[list[list[int]]] = []
        self._replay([], lambda step: clean.append(self._digests(step)))
        dirty: set[int] = set()

        def compare(step: int) -> None:
            # Where it is unclear which axis counts tokens, one reading that shows no change is
            # enough to acquit.
            pairs = zip(clean[step], self._digests(step), strict=True)
            if any(all(a != b for a, b in zip(x, y, strict=True)) for x, y in pairs):
                dirty.add(step)

        self._replay(sites, compare)
        first = min(self._chain(dirty), default=None)
        stages = self.replay.stages
        return ("", "") if first is None else (stages[first].name, stages[first].where)

    def _chain(self, dirty: set[int]) -> set[int]:
        """Steps with changed results that what left the graph was computed from.

        A changed result that is masked on the way, e.g. the score of a dead position, is in no
        such chain.
        """
        writers: dict[int, list[int]] = {}
        for step, stage in enumerate(self.replay.stages):
            for index in stage.writes:
                writers.setdefault(index, []).append(step)
        waiting = [step for index in self.replay.leaving for step in writers[index]]
        chain: set[int] = set()
        seen: set[int] = set()
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            chain |= {step} & dirty
            for index in self.replay.stages[step].reads:
                before = [s for s in writers.get(index, ()) if s < step]
                waiting += [s for s in before if s in dirty]
        return chain

    def _digests(self, step: int) -> list[list[int]]:
        """For each result of a step, a digest of its live part for each reading of its axes."""
        return [
            [_digest(part) for part in live_parts(tensor, self.live, self.padded)]
            for tensor in self.replay.results(step)
        ]


def live_parts(tensor: Tensor, live: int, padded: int) -> list[Tensor]:
    """The part that belongs to live rows, for every axis that may count tokens.

    An axis of ``padded`` entries, or of a multiple (tokens first, flattened). A tensor without such
    an axis belongs to all rows: what reduces over tokens reduces over padding too.
    """
    if live == padded:
        return [tensor]
    exact = [d for d, n in enumerate(tensor.shape) if n == padded]
    if exact:
        return [tensor.narrow(d, 0, live) for d in exact]
    multiple = [d for d, n in enumerate(tensor.shape) if n and n % padded == 0]
    if padded > 1 and multiple:
        return [tensor.narrow(d, 0, tensor.shape[d] // padded * live) for d in multiple]
    return [tensor]


def _digest(part: Tensor) -> int:
    return hash(bits(part.contiguous()).cpu().numpy().tobytes())


def _rows(mask: Tensor) -> str:
    return compact(mask.reshape(len(mask), -1).any(1).nonzero().flatten().tolist())
