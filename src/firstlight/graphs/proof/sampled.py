"""The quick check of a large bucket: one replay, and a few of its rows computed again.

An eager run at the shape of a large bucket takes as long as its capture. Causal attention allows a
check that costs one replay: the last rows of a request depend on the rows before them only through
the memory that those left. So windows of a few rows are run eager, unpadded, over the memory that
the replay left, and must give the rows, keys and values that the replay gave. Padding and all bytes
beyond the bucket hold garbage during the replay, so what leaks from there shows as well. For the
windows, memory that their rows must not see holds other contents than it held for the replay.
"""

from __future__ import annotations

import random
from dataclasses import replace

import torch
from torch import Tensor

from firstlight.graphs.proof.bench import Bench, Outcome
from firstlight.graphs.proof.compare import difference, relative_gap, scale_of
from firstlight.graphs.proof.contents import Batch
from firstlight.graphs.proof.equality import written_units
from firstlight.graphs.proof.inputs import poisons
from firstlight.graphs.proof.report import Finding
from firstlight.graphs.proof.visible import by_position, unseen, with_unseen_changed, written

WINDOW = 8
COMPARED = "replay and windows of its rows run eager, over the memory that the replay left"


def poisoned_replay(bench: Bench, batch: Batch) -> Outcome:
    """A replay with garbage in everything that must not matter."""
    bench.load(batch, bench.subject.bucket)
    for poison in poisons(bench, batch).values():
        poison(bench, batch)
    return bench.replay(batch, loaded=True)


def check_windows(
    bench: Bench, batch: Batch, found: Outcome, name: str, tolerance: float
) -> tuple[list[Finding], float]:
    """Rows at the end of each request, and some in the middle of the longest.

    Returns:
        findings, and the largest difference of outputs in units of the largest one.
    """
    windows = _windows(batch, random.Random(bench.seed))
    room = bench.subject.registry.capacity.requests
    findings: list[Finding] = []
    worst = 0.0
    for first in range(0, len(windows), room):
        wrong, gap = _check(bench, batch, windows[first : first + room], found, name, tolerance)
        findings += wrong
        worst = max(worst, gap)
    return findings, worst


def _windows(batch: Batch, draw: random.Random) -> list[tuple[int, int, int]]:
    """(request, first and end row within it); whole blocks, and no row in two windows."""
    windows = []
    lengths = [len(request) for request in batch.requests]
    for index in sorted({0, len(lengths) - 1}):
        windows.append((index, max(lengths[index] - WINDOW, 0), lengths[index]))
    longest = max(range(len(lengths)), key=lengths.__getitem__)
    room = lengths[longest] - 2 * WINDOW
    if room > 0:
        start = draw.randrange(room)
        windows.append((longest, start, start + WINDOW))
    found: list[tuple[int, int, int]] = []
    for index, first, end in windows:
        request = batch.requests[index]
        first = request.align(request.start + first) - request.start
        end = request.align(request.start + end, up=True) - request.start
        if not any(i == index and first < e and f < end for i, f, e in found):
            found.append((index, first, end))
    return found


def _check(
    bench: Bench,
    batch: Batch,
    windows: list[tuple[int, int, int]],
    found: Outcome,
    name: str,
    tolerance: float,
) -> tuple[list[Finding], float]:
    small = _batch(batch, windows)
    state = with_unseen_changed(bench, found.state, unseen(bench, small), bench.seed + 2)
    again = bench.eager(small, state, rows=small.live.tokens)
    findings: list[Finding] = []
    worst, scale = 0.0, scale_of(found.hidden)
    for (index, first, end), place in zip(windows, bench.subject.outputs(small), strict=True):
        expected = _outputs(bench, batch, found.hidden, (index, first, end))
        if expected is None:
            continue
        rows = again.hidden[place[0] : place[1]]
        worst = max(worst, relative_gap(rows, expected))
        gap = difference(rows, expected, tolerance * scale)
        if gap is not None:
            where = f"row {first + gap.first} of request {index} is the first of {gap.rows} to "
            where += f"differ by more than {tolerance:g} of the largest output"
            findings.append(Finding(name, COMPARED, where, gap.size))
    units = [unit for request in small.requests for unit in written_units(bench, request)]
    at = torch.tensor(sorted(set(bench.rows_of(units))))
    new = written(bench, small)[at]
    for tensor, held in again.state.items():
        kept, made = _new(bench, found.state[tensor][at], new), _new(bench, held[at], new)
        gap = difference(kept, made, tolerance * scale_of(made))
        if gap is not None:
            unit = bench.watched[int(at[gap.first])]
            where = f"{tensor}, unit {unit} is the first of {gap.rows} that differ"
            findings.append(Finding(name, COMPARED, where, gap.size))
            break  # what is wrong in one layer shows in all that follow
    return findings, worst


def _new(bench: Bench, held: Tensor, written: Tensor) -> Tensor:
    """Units without what the windows did not write; all of them where positions are not known."""
    places = by_position(bench, held)
    return held if places is None else places.masked_fill(~written[..., None].to(held.device), 0)


def _outputs(
    bench: Bench, batch: Batch, hidden: Tensor, window: tuple[int, int, int]
) -> Tensor | None:
    """The replay's output rows of a window; None where the body gives none in mid-request."""
    index, first, end = window
    start, stop = bench.subject.outputs(batch)[index]
    if not bench.subject.one_row_per_request:
        return hidden[start + first : start + end]
    return hidden[start:stop] if end == len(batch.requests[index]) else None


def _batch(batch: Batch, windows: list[tuple[int, int, int]]) -> Batch:
    """The windows as requests whose earlier rows are in memory."""
    starts = [0]
    for request in batch.requests:
        starts.append(starts[-1] + len(request))
    rows: list[int] = []
    requests = []
    for index, first, end in windows:
        request = batch.requests[index]
        rows += range(starts[index] + first, starts[index] + end)
        requests.append(replace(request, start=request.start + first, end=request.start + end))
    planes = {k: None if v is None else v[rows] for k, v in batch.planes.items()}
    return Batch(tuple(requests), batch.rows[rows], batch.positions[:, rows], planes)
