"""Which rows see which: a row must not react to a later one, but inside a media block it must."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from firstlight.graphs.proof.bench import Bench, Outcome
from firstlight.graphs.proof.compare import difference, scale_of
from firstlight.graphs.proof.contents import Batch
from firstlight.graphs.proof.memory import Placed
from firstlight.graphs.proof.report import Finding
from firstlight.graphs.proof.visible import by_position, positions

BLOCK_MATES = "a later row of the same media block"


@dataclass(frozen=True, slots=True)
class _Later:
    """Rows that are changed, one run of them a request, and what they may reach.

    Attributes:
        rows: by request, positions ``[low, high)`` that are changed; None leaves it alone.
        reach: by request, the first position that may react.
    """

    what: str
    rows: tuple[tuple[int, int] | None, ...]
    reach: tuple[int, ...]


def check_order(
    bench: Bench, batch: Batch, base: Outcome, case: str, tolerance: float
) -> tuple[list[Finding], Finding | None, bool]:
    """Change late rows, and look at the outputs and the stored keys of the rows before them.

    Args:
        base: the replay of ``batch``.
        tolerance: in units of the largest output, or the largest value of a state tensor.

    Returns:
        findings; what is wrong with rows of one block, which the body's own eager run shares; and
        whether the batch had such rows to look at.
    """
    findings: list[Finding] = []
    blind: Finding | None = None
    looked = False
    for later in _laters(batch):
        run = bench.replay(_changed(bench, batch, later))
        compared = f"replays before and after a change of {later.what}"
        where = _reaction(bench, batch, base, run, later, tolerance)
        if where is not None:
            findings.append(Finding(case, compared, where[0], where[1]))
        if later.what == BLOCK_MATES:
            seen = _mates_react(bench, batch, base, run, later)
            looked = seen is not None
            if seen is False:
                text = f"{BLOCK_MATES} is not seen by every row of it"
                blind = Finding(case, compared, text)
    return findings, blind, looked


def _laters(batch: Batch) -> Iterator[_Later]:
    """The row behind the blocks; the last row of the last block; all rows of that block."""
    blocks = [_computed(request) for request in batch.requests]
    plain: list[tuple[int, int] | None] = []
    for request, mine in zip(batch.requests, blocks, strict=True):
        at = mine[-1][1] if mine else request.end - 1
        plain.append((at, at + 1) if request.start < at < request.end else None)
    if any(plain):
        yield _later("a later row", batch, plain)
    last = [mine[-1] if mine else None for mine in blocks]
    if any(last):
        starts = [None if block is None else block[0] for block in last]
        mates = [None if block is None else (block[1] - 1, block[1]) for block in last]
        yield _later(BLOCK_MATES, batch, mates, starts)
        yield _later("a later media block", batch, last, starts)


def _later(
    what: str,
    batch: Batch,
    rows: list[tuple[int, int] | None],
    reach: list[int | None] | None = None,
) -> _Later:
    firsts = [None if span is None else span[0] for span in rows] if reach is None else reach
    ends = [r.end if at is None else at for r, at in zip(batch.requests, firsts, strict=True)]
    return _Later(what, tuple(rows), tuple(ends))


def _computed(request: Placed) -> list[tuple[int, int]]:
    """Blocks of more than one row that the batch computes."""
    return [(a, b) for a, b in request.blocks if request.start <= a < b - 1 < request.end]


def _changed(bench: Bench, batch: Batch, later: _Later) -> Batch:
    rows = batch.rows.clone()
    generator = torch.Generator().manual_seed(bench.seed + 4)
    first = 0
    for request, span in zip(batch.requests, later.rows, strict=True):
        if span is not None:
            part = rows[first + span[0] - request.start : first + span[1] - request.start]
            part.copy_(bench.contents.values(tuple(part.shape), generator))
        first += len(request)
    return replace(batch, rows=rows)


def _reaction(
    bench: Bench, batch: Batch, base: Outcome, run: Outcome, later: _Later, tolerance: float
) -> tuple[str, float] | None:
    """The first row or stored position before the changed ones that is not as it was."""
    rows = _output_rows(bench, batch, [(r.start, at) for r, at in _reaches(batch, later)])
    if len(rows):
        gap = difference(run.hidden[rows], base.hidden[rows], tolerance * scale_of(base.hidden))
        if gap is not None:
            return f"output row {int(rows[gap.first])}, which comes before it, changes", gap.size
    if not bench.before:
        return None
    before = [(r.units, r.start, at) for r, at in _reaches(batch, later)]
    mask = positions(bench, before)
    for name, ours, theirs in _stored(bench, run, base):
        at = mask.to(ours.device)
        gap = difference(ours[at], theirs[at], tolerance * scale_of(theirs))
        if gap is not None:
            return f"{name}: a position that comes before it is stored otherwise", gap.size
    return None


def _mates_react(
    bench: Bench, batch: Batch, base: Outcome, run: Outcome, later: _Later
) -> bool | None:
    """Whether each earlier row of the blocks shows the change; None if there is no way to tell."""
    spans = [
        (request, at, span[0])
        for (request, at), span in zip(_reaches(batch, later), later.rows, strict=True)
        if span is not None
    ]
    rows = _output_rows(
        bench,
        batch,
        [
            (at, span[0]) if span is not None else (request.end, request.end)
            for (request, at), span in zip(_reaches(batch, later), later.rows, strict=True)
        ],
    )
    if len(rows):
        changed = run.hidden[rows].ne(base.hidden[rows]).flatten(1).any(1)
        return bool(changed.all())
    if not bench.before:
        return None
    mask = positions(bench, [(request.units, low, high) for request, low, high in spans])
    shown: list[bool] = []
    for _, ours, theirs in _stored(bench, run, base):
        at = mask.to(ours.device)
        shown.append(bool(ours[at].ne(theirs[at]).any(-1).all()))
    # Of one layer alone nothing is stored that depends on attention.
    return any(shown) if len(shown) > 2 else None


def _reaches(batch: Batch, later: _Later) -> Iterator[tuple[Placed, int]]:
    return zip(batch.requests, later.reach, strict=True)


def _output_rows(bench: Bench, batch: Batch, spans: list[tuple[int, int]]) -> Tensor:
    """Output rows of positions ``[low, high)`` of each request, int64; none if rows are not all."""
    found: list[int] = []
    if not bench.subject.one_row_per_request:
        places = zip(bench.subject.outputs(batch), batch.requests, spans, strict=True)
        for (first, _), request, (low, high) in places:
            found += range(first + low - request.start, first + high - request.start)
    return torch.tensor(found, dtype=torch.int64)


def _stored(bench: Bench, run: Outcome, base: Outcome) -> Iterator[tuple[str, Tensor, Tensor]]:
    for name, held in run.state.items():
        ours, theirs = by_position(bench, held), by_position(bench, base.state[name])
        if ours is not None and theirs is not None:
            yield name, ours, theirs
