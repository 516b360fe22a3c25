"""Runs one bucket on given contents, by replay or eager, with the state before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import torch
from torch import Tensor

from firstlight.core.reason import Phase
from firstlight.errors import CaptureError
from firstlight.graphs.body import Body, BodyInputs
from firstlight.graphs.proof.cases import GUARDS, Case, Limits, fits_always, media_blocks
from firstlight.graphs.proof.contents import Batch, Contents
from firstlight.graphs.proof.memory import Placed, ProofMemory, SidedMemory, windows_of
from firstlight.graphs.proof.state import LentState
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Extent
from firstlight.graphs.slots import BLOCK_BOUNDS, EMBEDS, POSITIONS, phase_extent


@dataclass(frozen=True, slots=True)
class Subject:
    """One captured bucket and what it was captured from.

    Attributes:
        one_row_per_request: the body gives the last row of each request, not a row per token.
        previous: the next smaller bucket, 0 if there is none.
        inputs: the body's arguments for a number of padded rows, views of the slots.
        replay: runs the captured graph on what the slots hold.
    """

    phase: Phase
    bucket: int
    previous: int
    registry: SlotRegistry
    inputs: Callable[[int], BodyInputs]
    body: Body
    replay: Callable[[], Tensor]
    one_row_per_request: bool = False

    def outputs(self, batch: Batch) -> list[tuple[int, int]]:
        """The output rows ``[first, end)`` of each request of a batch."""
        found, first = [], 0
        for request in batch.requests:
            n = 1 if self.one_row_per_request else len(request)
            found.append((first, first + n))
            first += n
        return found

    def limits(self, memory: ProofMemory) -> Limits:
        """What a batch of this bucket may be, with the memory that is free now."""
        return Limits(
            self.phase,
            self.bucket,
            self.previous,
            max_requests=self.registry.capacity.requests,
            max_context=memory.max_context,
            unit_tokens=memory.unit_tokens,
            free_units=memory.free_units,
            windows=windows_of(memory),
            prefix_lm=self.registry.has(BLOCK_BOUNDS),
            fits=memory.fits if isinstance(memory, SidedMemory) else fits_always,
        )


class Reference(Protocol):
    """What a bucket that was checked before left of its loan; see :mod:`.agree`."""

    @property
    def units(self) -> tuple[int, ...]:
        """The loan."""
        ...

    def contents(self, units: list[int]) -> dict[str, Tensor]:
        """What watched units held before its run."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run left: live output rows, and the watched units of every state tensor."""

    hidden: Tensor
    state: Mapping[str, Tensor]


@dataclass(slots=True)
class Bench:
    """Slots, memory and graph of one bucket, put back as they were at the end.

    Lends units of the memory, watches them and the sink, and fills them with random contents before
    every run, so that no run sees what another left. Use as a context manager.
    """

    subject: Subject
    memory: ProofMemory
    contents: Contents
    seed: int
    units: list[int] = field(default_factory=list)
    before: dict[str, Tensor] = field(default_factory=dict)
    _guards: int = 0
    _state: LentState = field(init=False)

    def __post_init__(self) -> None:
        self._state = LentState(self.memory)

    def __enter__(self) -> Self:
        return self

    def lend(self, n: int, guards: int) -> None:
        """Take ``n`` units for all batches to come, ``guards`` of which no batch gets."""
        self._guards = guards
        self.units = list(self.memory.lend(n))
        if self._state.tensors:
            self._state.watch(self.units)
            self.before = self._state.drawn(torch.Generator().manual_seed(self.seed))

    def borrow(self, reference: Reference, batch: Batch) -> bool:
        """Take the units of a reference again, with what they held, and watch those of ``batch``.

        Returns:
            False if the memory gives other units now; nothing is lent then.
        """
        units = self.memory.lend(len(reference.units))
        if tuple(units) != reference.units:
            self.memory.give_back(units)
            return False
        self.units = list(units)
        if self._state.tensors:
            held = {unit for request in batch.requests for unit in request.units}
            ends = (units[0], units[-1])
            self._guards = 0 if held & {*ends} else GUARDS
            self._state.watch([u for u in units if u in held or u in ends])
            self.before = reference.contents(self.watched)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._state.restore()
        self.memory.give_back(self.units)
        self.units = []
        registry = self.subject.registry
        registry.neutralise(registry.capacity)

    # -- places -------------------------------------------------------------------------------

    @property
    def watched(self) -> list[int]:
        """The unit behind each row of a state snapshot: the sink, if any, then the loan."""
        return self._state.watched

    def window(self, name: str) -> int | None:
        """How many positions a row sees of a state tensor at most; None for its whole context."""
        return self._state.window(name)

    def place(self, case: Case, turn: int = 0) -> tuple[Placed, ...]:
        """Units for the requests of a case; another ``turn`` gives other places."""
        size = self.memory.unit_tokens
        room = self.units[self._guards // 2 : len(self.units) - self._guards // 2]
        if case.scattered or turn:
            generator = torch.Generator().manual_seed(self.seed + turn)
            room = [room[i] for i in torch.randperm(len(room), generator=generator).tolist()]
        common, room = room[: case.shared], room[case.shared :]
        placed = []
        for start, end in case.requests:
            first = common if start >= case.shared * size else []
            n = -(-end // size) - len(first)
            blocks = media_blocks(start, end) if case.blocks else ()
            placed.append(Placed((*first, *room[:n]), start, end, blocks))
            room = room[n:]
        return tuple(placed)

    # -- runs ---------------------------------------------------------------------------------

    def load(self, batch: Batch, rows: int) -> None:
        """Write a batch into the slots as the serving path does, padded to ``rows``."""
        self.fill(batch, rows)
        self.subject.registry.write(EMBEDS, batch.rows, 0)

    def fill(self, batch: Batch, rows: int) -> None:
        """Everything but the rows; the memory's sides then hold what the batch needs."""
        if self._state.tensors:
            self._state.bind([*batch.requests, *self._beside()])
        values = {**self.memory.values(batch.requests), **batch.planes, POSITIONS: batch.positions}
        self.subject.registry.fill(values, batch.live, self.extent(rows))

    def extent(self, rows: int) -> Extent:
        """The padded extent of ``rows``."""
        return phase_extent(self.subject.phase, rows, self.subject.registry.capacity)

    def replay(
        self, batch: Batch, state: Mapping[str, Tensor] | None = None, *, loaded: bool = False
    ) -> Outcome:
        """The captured graph on ``batch``, over ``state`` or the random contents.

        Args:
            loaded: the slots hold the batch already, perhaps with something changed.

        Raises:
            CaptureError: the graph gives other rows than its bucket has, so it is another bucket's.
        """
        if not loaded:
            self.load(batch, self.subject.bucket)
        return self._run(self._replayed, batch, state)

    def _replayed(self) -> Tensor:
        """Rows behind a bucket hold what earlier batches left, so no graph may be longer."""
        padded = self.extent(self.subject.bucket)
        rows = padded.requests if self.subject.one_row_per_request else padded.tokens
        hidden = self.subject.replay()
        if hidden.shape[0] != rows:
            raise CaptureError(
                f"the graph of bucket {self.subject.bucket} gives {len(hidden)} rows, not {rows}"
            )
        return hidden

    def eager(
        self, batch: Batch, state: Mapping[str, Tensor] | None = None, *, rows: int | None = None
    ) -> Outcome:
        """The body on ``batch``, at the bucket's shape or padded to ``rows``."""
        rows = self.subject.bucket if rows is None else rows
        self.load(batch, rows)

        def run() -> Tensor:
            with torch.inference_mode():  # as in a step
                return self.subject.body(self.subject.inputs(rows))

        return self._run(run, batch, state)

    def sums(self) -> dict[str, Tensor]:
        """A sum over the bytes of every row of the state."""
        return self._state.sums()

    def changed_outside(self, before: Mapping[str, Tensor]) -> str | None:
        """The first tensor that differs from sums made ``before`` in a row of no loan."""
        return self._state.changed_outside(before)

    def _beside(self) -> list[Placed]:
        """The units beside those of all batches, as a request, so that sides hold them too."""
        half = self._guards // 2
        if not half:
            return []
        guards = (*self.units[:half], *self.units[-half:])
        return [Placed(guards, 0, len(guards) * self.memory.unit_tokens)]

    def _run(
        self, run: Callable[[], Tensor], batch: Batch, state: Mapping[str, Tensor] | None
    ) -> Outcome:
        base = self.before if state is None else state
        self._state.write(base)
        hidden = run()[: self.subject.outputs(batch)[-1][1]].clone()
        return Outcome(hidden, self._state.read(base))

    def rows_of(self, units: Sequence[int]) -> list[int]:
        """Rows of a state snapshot that hold these units."""
        places = {unit: row for row, unit in enumerate(self.watched)}
        return [places[unit] for unit in units]
