"""Trial runs: replay with some sites poisoned, compare the live rows, find the site and the op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from firstlight.graphs.backends.tape.record import OpCall
from firstlight.graphs.sanitizer.audit import Fault
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.memory import Snapshot, compact
from firstlight.graphs.sanitizer.poison import bits
from firstlight.graphs.sanitizer.replay import CheckedReplay, output_region
from firstlight.graphs.sanitizer.sites import Site, intermediates
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
    """

    replay: CheckedReplay
    expected: Tensor
    live: int
    padded: int
    before: Sequence[Snapshot]
    stored: Callable[[], str]

    def run(self, sites: Sequence[Site]) -> Trouble | None:
        """Replay with ``sites`` poisoned; what differs from the unpoisoned replay."""
        raised = self._replay(sites)
        if raised is not None and raised.what == "raised":
            return raised
        got = self.replay.graph.output[: len(self.expected)]
        nan = got.isnan() & ~self.expected.isnan()
        if bool(nan.any()):
            return Trouble("nan", f"NaN in live rows {_rows(nan)}")
        differs = bits(got).ne(bits(self.expected))
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
        found: list[OpCall] = []

        def look(step: int, op: OpCall) -> None:
            parts = (
                live_parts(self.replay.tensor(p), self.live, self.padded)
                for p in self.replay.written(op)
                if p.dtype.is_floating_point
            )
            if not found and any(all(bool(p.isnan().any()) for p in given) for given in parts):
                found.append(op)

        self._replay([], look)
        by = (found[0].name, found[0].where) if found else ("", "")
        detail = f"live rows {_rows(self.expected.isnan())} are NaN without any poison"
        yield Fault(FindingKind.NAN_OUTPUT, "body", detail, *by)

    def undefined(self) -> Iterator[Fault]:
        """The first operation that has, in any row, dead ones too, what an earlier run left.

        Such rows reach nobody in this batch; they do as soon as something mixes rows.
        """
        before: list[list[int]] = []
        self._replay([], lambda _, op: before.append(self._wholes(op)))
        found: list[OpCall] = []

        def compare(step: int, op: OpCall) -> None:
            if not found and self._wholes(op) != before[step]:
                found.append(op)

        self._replay([intermediates()], compare)
        if found:
            detail = "rows that belong to no request are read or left as an earlier run left them"
            kind, op = FindingKind.STALE_INTERMEDIATE, found[0]
            yield Fault(kind, "rows of no request", detail, op.name, op.where)

    def _wholes(self, op: OpCall) -> list[int]:
        return [_digest(self.replay.tensor(place)) for place in self.replay.written(op)]

    def _fault(self, site: Site, trouble: Trouble) -> Fault:
        kind, op, where = site.kind, trouble.op, trouble.where
        if trouble.what == "raised":
            kind = FindingKind.INDEX_OUT_OF_RANGE
        elif trouble.what == "outside":
            kind = FindingKind.WRITE_OUTSIDE
        else:
            op, where = self._first_op([site])
        return Fault(kind, site.subject, f"{site.detail}: {trouble.detail}", op, where)

    def _replay(
        self, sites: Sequence[Site], watch: Callable[[int, OpCall], None] | None = None
    ) -> Trouble | None:
        for snapshot in self.before:
            snapshot.restore()
        for site in sites:
            if site.apply is not None:
                site.apply()
        return self.replay.run(poison=any(s.apply is None for s in sites), watch=watch)

    def _first_op(self, sites: Sequence[Site]) -> tuple[str, str]:
        """Name and line of the first operation of the chain through which the poison got out."""
        clean: list[list[list[int]]] = []
        self._replay([], lambda _, op: clean.append(self._digests(op)))
        dirty: set[int] = set()

        def compare(step: int, op: OpCall) -> None:
            # Where it is unclear which axis counts tokens, one reading that shows no change is
            # enough to acquit.
            pairs = zip(clean[step], self._digests(op), strict=True)
            if any(all(a != b for a, b in zip(x, y, strict=True)) for x, y in pairs):
                dirty.add(step)

        self._replay(sites, compare)
        first = min(self._chain(dirty), default=None)
        return ("", "") if first is None else (self._ops[first].name, self._ops[first].where)

    def _chain(self, dirty: set[int]) -> set[int]:
        """Steps with changed results that what left the graph was computed from.

        A changed result that is masked on the way, e.g. the score of a dead position, is in no
        such chain.
        """
        writers: dict[int, list[int]] = {}
        for step, op in enumerate(self._ops):
            for index in op.writes:
                writers.setdefault(index, []).append(step)
        regions, output = self.replay.regions, output_region(self.replay.graph)
        kept = {i for i in writers if i == output or not regions[i].scratch}
        waiting = [step for index in kept for step in writers[index]]
        chain: set[int] = set()
        seen: set[int] = set()
        while waiting:
            step = waiting.pop()
            if step in seen:
                continue
            seen.add(step)
            chain |= {step} & dirty
            for index in self._ops[step].reads:
                before = [s for s in writers.get(index, ()) if s < step]
                waiting += [s for s in before if s in dirty]
        return chain

    @property
    def _ops(self) -> Sequence[OpCall]:
        return self.replay.ops

    def _digests(self, op: OpCall) -> list[list[int]]:
        """For each result of ``op``, a digest of its live part for each reading of its axes."""
        places = self.replay.written(op)
        return [
            [_digest(part) for part in live_parts(self.replay.tensor(p), self.live, self.padded)]
            for p in places
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
    return hash(bits(part.contiguous()).numpy().tobytes())


def _rows(mask: Tensor) -> str:
    return compact(mask.reshape(len(mask), -1).any(1).nonzero().flatten().tolist())
