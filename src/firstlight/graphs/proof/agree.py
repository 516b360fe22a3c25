"""The quick check of all buckets but the largest: they must agree with it.

All buckets of a runner compute the same function. The largest one is checked against eager runs
first; a smaller one then replays the first rows of the same batch, padded with garbage, and must
give the same rows, keys and values. That costs one replay and no eager run at all. Memory that no
row of the smaller batch may see holds other contents than it held for the larger one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from firstlight.graphs.proof.bench import Bench, Outcome
from firstlight.graphs.proof.compare import difference, relative_gap, scale_of
from firstlight.graphs.proof.contents import Batch
from firstlight.graphs.proof.equality import written_units
from firstlight.graphs.proof.memory import Placed
from firstlight.graphs.proof.report import Finding
from firstlight.graphs.proof.visible import by_position, written


@dataclass(frozen=True, slots=True)
class Reference:
    """What a checked bucket gave for a batch.

    Attributes:
        units: the loan in which the batch lived; ``watched``: the units of the snapshots.
        before: their contents before the run; the outcome holds those after it.
    """

    bucket: int
    batch: Batch
    outcome: Outcome
    units: tuple[int, ...]
    watched: tuple[int, ...]
    before: Mapping[str, Tensor]

    def first(self, n: int) -> Batch | None:
        """The batch of the first ``n`` rows, or fewer where the last of them would cut a block.

        Causal attention, and one that is bidirectional inside of blocks, gives them the same
        results. None if no row is left.
        """
        requests: list[Placed] = []
        left = n
        for request in self.batch.requests:
            end = request.align(min(request.end, request.start + left))
            if end > request.start:
                requests.append(replace(request, end=end))
            if end < request.end:
                break
            left -= len(request)
        rows = sum(map(len, requests))
        return self.batch.cut(0, rows, tuple(requests)) if rows else None

    def contents(self, units: list[int]) -> dict[str, Tensor]:
        """What some watched units held before the run."""
        at = self._rows(units)
        return {name: held[at.to(held.device)] for name, held in self.before.items()}

    def after(self, tensor: str, units: list[int]) -> Tensor:
        """What some watched units of a state tensor held after the run."""
        held = self.outcome.state[tensor]
        return held[self._rows(units).to(held.device)]

    def _rows(self, units: list[int]) -> Tensor:
        places = {unit: row for row, unit in enumerate(self.watched)}
        return torch.tensor([places[unit] for unit in units], dtype=torch.int64)


def check_agreement(
    bench: Bench, reference: Reference, batch: Batch, found: Outcome, name: str, tolerance: float
) -> tuple[list[Finding], float]:
    """Compare a replay of the reference's first rows with the reference.

    Returns:
        findings, and the largest difference of outputs in units of the largest one.
    """
    compared = f"replay and the same rows in the bucket of {reference.bucket}"
    findings: list[Finding] = []
    rows, expected = _common(bench, reference, batch, found)
    gap = relative_gap(rows, expected) if len(rows) else 0.0
    wrong = difference(rows, expected, tolerance * scale_of(expected))
    if wrong is not None:
        where = f"output row {wrong.first} is the first of {wrong.rows} to differ by more than "
        where += f"{tolerance:g} of the largest output"
        findings.append(Finding(name, compared, where, wrong.size))
    findings += _stored(bench, reference, batch, found, (name, compared), tolerance)
    return findings, gap


def _common(
    bench: Bench, reference: Reference, batch: Batch, found: Outcome
) -> tuple[Tensor, Tensor]:
    """Output rows of both; where a request gives its last row alone, only requests kept whole."""
    if not bench.subject.one_row_per_request:
        n = found.hidden.shape[0]
        return found.hidden, reference.outcome.hidden[:n]
    pairs = zip(batch.requests, reference.batch.requests, strict=False)
    n = sum(ours.end == theirs.end for ours, theirs in pairs)
    return found.hidden[:n], reference.outcome.hidden[:n]


def _stored(
    bench: Bench,
    reference: Reference,
    batch: Batch,
    found: Outcome,
    names: tuple[str, str],
    tolerance: float,
) -> list[Finding]:
    """Where the batch stored something else than the reference; the first tensor says it all."""
    units = [unit for request in batch.requests for unit in written_units(bench, request)]
    whole = _whole_units(bench, batch)
    new = written(bench, batch)[bench.rows_of(units)]
    for tensor, held in found.state.items():
        made = reference.after(tensor, units)
        places = by_position(bench, made)
        if places is None:
            made, kept = reference.after(tensor, whole), held[bench.rows_of(whole)]
        else:
            other = (~new[..., None]).to(held.device)
            ours = by_position(bench, held[bench.rows_of(units)])
            assert ours is not None
            made, kept = places.masked_fill(other, 0), ours.masked_fill(other, 0)
        wrong = difference(kept, made, tolerance * scale_of(made))
        if wrong is not None:
            where = f"{tensor}, unit {units[wrong.first]} is the first of {wrong.rows} that differ"
            return [Finding(*names, where, wrong.size)]
    return []


def _whole_units(bench: Bench, batch: Batch) -> list[int]:
    """Units in which the batch wrote every position that the reference wrote."""
    size = bench.memory.unit_tokens
    last = batch.requests[-1]
    units = [unit for request in batch.requests for unit in written_units(bench, request)]
    return units[:-1] if last.end % size else units
