"""Whether the graph of a budget gives the rows that the adapter gives, before it serves anybody."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from firstlight.engine.encoder_graphs.slots import named
from firstlight.graphs.encoder import EncoderRunner
from firstlight.graphs.slot import Axis, Meaning
from firstlight.models.adapter import Adapter
from firstlight.models.tower import Tail, Tower

GARBAGE: Final = 3.0e4
"""What padding is overwritten with: far from anything, and still a number."""

_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 4e-2, torch.float16: 1e-2}
"""Largest difference to the adapter's rows, as a share of the largest value: at another number of
rows a library may sum in another order."""


@dataclass(frozen=True, slots=True)
class EncoderProof:
    """The outcome for one budget.

    Attributes:
        cases: splits of the budget that were compared.
        finding: what differed; None if nothing did.
        exact: whether all rows were those of the adapter bit for bit.
        replay_ms, eager_ms: of a full budget, one run each.
        seconds: that the proof took.
    """

    cases: int
    finding: str | None
    exact: bool
    replay_ms: float
    eager_ms: float
    seconds: float

    @property
    def summary(self) -> str:
        """For people."""
        if self.finding is not None:
            return self.finding
        how = "bit for bit" if self.exact else "within rounding"
        return f"{self.cases} splits equal the adapter's rows {how}"


@dataclass(frozen=True, slots=True)
class _Case:
    """What one split gave.

    Attributes:
        finding: what is wrong; None if nothing is.
        exact: whether the rows are the adapter's bit for bit.
        replay_ms, eager_ms: by the clock, filling of slots and all.
    """

    finding: str | None
    exact: bool
    replay_ms: float
    eager_ms: float


class EncoderProver:
    """Compares replays, with garbage in all padding, with what the adapter gives.

    Args:
        full: more splits; two, one of them padded, are the quick proof.
        same_bits: whether a replay must equal the body over the same slots bit for bit, as on a
            CPU. The adapter's own run, at other shapes, may differ by rounding.
    """

    def __init__(
        self, adapter: Adapter, tower: Tower, runner: EncoderRunner, *, full: bool, same_bits: bool
    ) -> None:
        self._adapter = adapter
        self._tower = tower
        self._runner = runner
        self._full = full
        self._same_bits = same_bits

    def prove(self, budget: int) -> EncoderProof:
        """Several splits of a captured budget, whole ones and padded ones."""
        began = time.perf_counter()
        cases: list[_Case] = []
        finding: str | None = None
        for parts in splits(budget, self._runner.most_segments, full=self._full):
            cases.append(self._case(parts, budget))
            if cases[-1].finding is not None:
                finding = f"{len(parts)} pictures of {list(parts)} units: {cases[-1].finding}"
                break
        return EncoderProof(
            len(cases),
            finding,
            all(case.exact for case in cases),
            cases[0].replay_ms,
            cases[0].eager_ms,
            time.perf_counter() - began,
        )

    def _case(self, parts: tuple[int, ...], budget: int) -> _Case:
        artifacts = self._tower.example(parts, budget)
        began = time.perf_counter()
        with torch.no_grad():
            expected = torch.cat(self._adapter.media_rows(artifacts))
        between = time.perf_counter()
        self._runner.fill(named(self._tower.values(artifacts)), budget)
        self._spoil_padding(sum(parts), budget)
        replay = self._runner.graphs[budget].replay
        output = replay().clone()
        times = ((time.perf_counter() - between) * 1e3, (between - began) * 1e3)
        rows = torch.cat(self._tower.split(output, artifacts))
        exact = torch.equal(rows, expected)
        found = None if exact else self._difference(rows, expected)
        if found is None and not exact and not self._agrees(output, sum(parts), budget):
            found = "the replay differs from the body over the same slots"
        moved = found is None and len(parts) > 1 and self._moved_borders(budget)
        if moved and torch.equal(replay()[: sum(parts)], output[: sum(parts)]):
            found = "where one picture ends and the next begins changes nothing"
        return _Case(found, exact, *times)

    def _difference(self, rows: Tensor, expected: Tensor) -> str | None:
        worst = _apart(rows, expected)
        allowed = _TOLERANCE[expected.dtype]
        if worst <= allowed:
            return None
        return f"rows differ from the adapter's by {worst:.1e}, allowed is {allowed:.0e}"

    def _agrees(self, output: Tensor, units: int, budget: int) -> bool:
        """Whether the body, run eager over the same slots, gives the same live units."""
        a, b = output[:units], self._runner.eager(budget)[:units]
        return torch.equal(a, b) if self._same_bits else _apart(a, b) <= _TOLERANCE[a.dtype]

    def _spoil_padding(self, units: int, budget: int) -> None:
        """Garbage in every slot of values behind the live units."""
        for name, view in self._runner.views(budget).items():
            spec = self._runner.registry.spec(name)
            if spec.axis is Axis.TOKENS and spec.meaning is Meaning.VALUE:
                view[units:] = GARBAGE

    def _moved_borders(self, budget: int) -> bool:
        """Make all live units one segment; whether the tower has borders at all."""
        moved = False
        for given in self._tower.inputs:
            if given.tail is Tail.LAST:
                ends = self._runner.views(budget)[f"encoder.{given.name}"]
                ends.fill_(int(ends[-1]))
                moved = True
        return moved


def _apart(a: Tensor, b: Tensor) -> float:
    """The largest difference as a share of the largest value."""
    return float((a.float() - b.float()).abs().amax() / b.float().abs().amax())


def splits(budget: int, most: int, *, full: bool) -> Iterator[tuple[int, ...]]:
    """Ways to fill a budget, wholly and in part, with at most so many pictures."""
    two = budget > 1 and most > 1
    yield (budget // 2, budget - budget // 2) if two else (budget,)
    few = min(most, budget - 1, 5)
    if few > 1:
        yield (max(budget // (few + 1), 1),) * few
    if full and two:
        yield (budget,)
        yield (1, budget - 1)
        yield (budget - 1,)
