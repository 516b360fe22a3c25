"""A replay must leave what eager leaves: the same rows, and the same state in every unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from firstlight.graphs.proof.bench import Bench, Outcome
from firstlight.graphs.proof.compare import difference, relative_gap, scale_of
from firstlight.graphs.proof.contents import Batch
from firstlight.graphs.proof.memory import Placed
from firstlight.graphs.proof.report import Finding

REPLAY_EAGER = "replay and eager at the same shape"


def compare_runs(
    bench: Bench, batch: Batch, found: Outcome, expected: Outcome, name: str, tolerance: float
) -> list[Finding]:
    """Replay against eager: live rows, and the watched state without the sink."""
    findings = []
    gap = difference(found.hidden, expected.hidden, tolerance)
    if gap is not None:
        where = f"output row {gap.first}{_owner(bench, batch, gap.first)} is the first of "
        where += f"{gap.rows} in {gap.total} live rows to differ"
        findings.append(Finding(name, REPLAY_EAGER, where, gap.size))
    findings += compare_state(
        bench, batch, found.state, expected.state, name, REPLAY_EAGER, tolerance
    )
    return findings


def compare_state(
    bench: Bench,
    batch: Batch,
    found: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
    name: str,
    compared: str,
    tolerance: float = 0.0,
) -> list[Finding]:
    """Differences of the state outside the sink; the first unit of each tensor is named."""
    skip = 0 if bench.memory.sink is None else 1
    findings = []
    for tensor, values in found.items():
        gap = difference(values[skip:], expected[tensor][skip:], tolerance)
        if gap is None:
            continue
        unit = bench.watched[gap.first + skip]
        where = f"{tensor}, unit {unit} ({_role(bench, batch, unit)}) is the first of "
        where += f"{gap.rows} that differ"
        findings.append(Finding(name, compared, where, gap.size))
        break  # what is wrong in one layer shows in all that follow
    return findings


def check_untouched(bench: Bench, batch: Batch, run: Outcome, name: str) -> list[Finding]:
    """Units of no request, and those that only hold a cached prefix, keep what they held."""
    mine = {unit for request in batch.requests for unit in written_units(bench, request)}
    sink = bench.memory.sink
    others = [unit for unit in bench.watched if unit not in mine and unit != sink]
    rows = torch.tensor(bench.rows_of(others), dtype=torch.int64)
    for tensor, values in run.state.items():
        at = rows.to(values.device)
        gap = difference(values[at], bench.before[tensor][at])
        if gap is not None:
            unit = others[gap.first]
            where = f"{tensor}, unit {unit} ({_role(bench, batch, unit)}) was written"
            return [Finding(name, "memory that the batch does not own, before and after", where,
                            gap.size)]  # fmt: skip
    return []


def check_alone(
    bench: Bench, batch: Batch, found: Outcome, name: str, tolerance: float
) -> tuple[list[Finding], float]:
    """Each request's rows against its own eager run without padding and without neighbours.

    Returns:
        findings, and the largest difference in units of the largest output.
    """
    findings: list[Finding] = []
    worst = 0.0
    for index, (first, end) in enumerate(bench.subject.outputs(batch)):
        alone = bench.eager(batch.alone(index), rows=len(batch.requests[index]))
        compared = "replay and each request run eager, alone and unpadded"
        wrong, gap = _near(
            found.hidden[first:end], alone.hidden, tolerance, (name, compared),
            partial(_row_of_request, index, first),
        )  # fmt: skip
        findings += wrong
        worst = max(worst, gap)
    return findings, worst


def check_chunks(
    bench: Bench, batch: Batch, other: tuple[Placed, ...], name: str, tolerance: float
) -> tuple[list[Finding], float]:
    """One request replayed in two chunks, in other places, against the whole of it run eager.

    It shows what a single run cannot: that later chunks read what earlier ones wrote.
    """
    n = batch.live.tokens
    cut = max(n // 3, 1)
    units, before = other[0].units, batch.requests[0].start
    whole = bench.eager(batch, rows=n)
    first = batch.cut(0, cut, (Placed(units, before, before + cut),))
    rest = batch.cut(cut, n, (Placed(units, before + cut, before + n),))
    head = bench.replay(first)
    tail = bench.replay(rest, head.state)
    skip = 0 if bench.subject.one_row_per_request else cut
    compared = "the second of two chunks of a request and the whole of it run eager"
    return _near(
        tail.hidden, whole.hidden[skip:], tolerance, (name, compared),
        lambda row: f"output row {row} of the second chunk, which begins at row {cut} of {n}",
    )  # fmt: skip


def _row_of_request(index: int, first: int, row: int) -> str:
    return f"output row {first + row} (request {index})"


def _near(
    found: Tensor,
    expected: Tensor,
    tolerance: float,
    names: tuple[str, str],
    place: Callable[[int], str],
) -> tuple[list[Finding], float]:
    """A finding unless equal up to ``tolerance`` times the largest output; and the real gap."""
    gap = relative_gap(found, expected)
    if gap <= tolerance:
        return [], gap
    scale = scale_of(expected) or 1.0
    at = difference(found, expected, tolerance * scale)
    where = f"{place(0 if at is None else at.first)} is the first to differ by more than "
    where += f"{tolerance:g} of the largest output"
    return [Finding(*names, where, gap * scale)], gap


def written_units(bench: Bench, request: Placed) -> tuple[int, ...]:
    """Units that hold a position which the batch computes."""
    size = bench.memory.unit_tokens
    return request.units[request.start // size : -(-request.end // size)]


def prefix_units(bench: Bench, request: Placed) -> tuple[int, ...]:
    """Units that hold a position which is in memory already."""
    return request.units[: -(-request.start // bench.memory.unit_tokens)]


def _owner(bench: Bench, batch: Batch, row: int) -> str:
    """Which request an output row belongs to, where there are several."""
    if len(batch.requests) == 1:
        return ""
    for index, (first, end) in enumerate(bench.subject.outputs(batch)):
        if first <= row < end:
            request = batch.requests[index]
            return f" (request {index}, position {request.end - (end - row)})"
    return ""


def _role(bench: Bench, batch: Batch, unit: int) -> str:
    for index, request in enumerate(batch.requests):
        if unit in written_units(bench, request):
            return f"request {index} writes it"
        if unit in prefix_units(bench, request):
            return f"cached prefix of request {index}"
    near = bench.memory.sink is not None and abs(unit - bench.memory.sink) == 1
    return "of no request, beside the sink" if near else "of no request"
