"""What lent units hold in every state tensor, whichever rows of the tensors hold them now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from firstlight.graphs.proof.memory import Placed, ProofMemory, SidedMemory


@dataclass(frozen=True, slots=True)
class _Places:
    """Of one tensor: which watched units it holds, and in which rows; int64 ``[n]`` each."""

    at: Tensor
    rows: Tensor
    all: bool


@dataclass(slots=True)
class LentState:
    """Reads and writes the state by unit; puts every row back that it ever wrote.

    A snapshot is ``[watched units, ...]`` by tensor. What a side does not hold at the moment keeps,
    in a snapshot, what the snapshot before it says.
    """

    memory: ProofMemory
    watched: list[int] = field(default_factory=list)
    tensors: Mapping[str, Tensor] = field(init=False)
    _sides: SidedMemory | None = field(init=False)
    _places: dict[str, _Places] = field(default_factory=dict)
    _saved: dict[str, tuple[list[Tensor], list[Tensor]]] = field(default_factory=dict)
    _known: dict[str, set[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors = self.memory.state()
        self._sides = self.memory if isinstance(self.memory, SidedMemory) else None

    def watch(self, units: Sequence[int]) -> None:
        """Look at the sink, if there is one, and at ``units``."""
        sink = [] if self.memory.sink is None else [self.memory.sink]
        self.watched = [*sink, *units]
        self._place()

    def bind(self, requests: Sequence[Placed]) -> None:
        """Let every side hold what a batch needs."""
        if self._sides is not None:
            self._sides.bind(requests)
            self._place()

    def rows(self, name: str, units: Sequence[int]) -> list[int]:
        """Rows of a tensor that hold these units."""
        return list(units if self._sides is None else self._sides.rows(name, units))

    def window(self, name: str) -> int | None:
        """How far back rows see in a tensor; None for all of their context."""
        return None if self._sides is None else self._sides.window(name)

    def read(self, base: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A snapshot; units that a side does not hold are as in ``base``."""
        found = {}
        for name, tensor in self.tensors.items():
            places = self._places[name]
            held = tensor.index_select(0, places.rows)
            if not places.all:
                held = base[name].index_copy(0, places.at, held)
            found[name] = held
        return found

    def write(self, state: Mapping[str, Tensor]) -> None:
        """Give every unit that is held what a snapshot says."""
        for name, held in state.items():
            places = self._places[name]
            part = held if places.all else held.index_select(0, places.at)
            self.tensors[name].index_copy_(0, places.rows, part)

    def restore(self) -> None:
        """Every row that was ever placed holds again what it held at first."""
        for name, (rows, contents) in self._saved.items():
            self.tensors[name].index_copy_(0, torch.cat(rows), torch.cat(contents))
        self._saved.clear()
        self._known.clear()

    def drawn(self, generator: torch.Generator) -> dict[str, Tensor]:
        """A snapshot of random contents; tensors that hold no floats are as they are.

        Tensors of one shape get the same draw, turned by a unit each, since drawing is slow.
        """
        drawn: dict[tuple[torch.Size, torch.dtype], Tensor] = {}
        found = {}
        for turn, (name, tensor) in enumerate(self.tensors.items()):
            if not tensor.dtype.is_floating_point:
                rows = torch.tensor(self.rows(name, self.watched), device=tensor.device)
                found[name] = tensor.index_select(0, rows)
                continue
            shape = torch.Size((len(self.watched), *tensor.shape[1:]))
            if (shape, tensor.dtype) not in drawn:
                values = torch.randn(shape, generator=generator)
                drawn[shape, tensor.dtype] = values.to(tensor.device, tensor.dtype)
            found[name] = drawn[shape, tensor.dtype].roll(turn, 0)
        return found

    def sums(self) -> dict[str, Tensor]:
        """A sum over the bytes of every row of every tensor, int64 ``[rows]``."""
        return {name: _row_sums(tensor) for name, tensor in self.tensors.items()}

    def changed_outside(self, before: Mapping[str, Tensor]) -> str | None:
        """The first tensor that differs from ``before`` in a row that was never placed."""
        for name, now in self.sums().items():
            wrong = now.ne(before[name])
            wrong[sorted(self._known.get(name, ()))] = False
            if bool(wrong.any()):
                return name
        return None

    def _place(self) -> None:
        """Find the rows of the watched units, and keep what rows held that are new."""
        sink = self.memory.sink
        for name, tensor in self.tensors.items():
            rows = self.rows(name, self.watched)
            out = None if sink is None else self.rows(name, [sink])[0]
            at = [
                i
                for i, (unit, row) in enumerate(zip(self.watched, rows, strict=True))
                if row != out or unit == sink
            ]
            held = [rows[i] for i in at]
            device = tensor.device
            places = _Places(
                torch.tensor(at, dtype=torch.int64, device=device),
                torch.tensor(held, dtype=torch.int64, device=device),
                len(at) == len(rows),
            )
            self._places[name] = places
            self._save(name, tensor, held)

    def _save(self, name: str, tensor: Tensor, rows: list[int]) -> None:
        known = self._known.setdefault(name, set())
        fresh = [row for row in rows if row not in known]
        if fresh:
            known.update(fresh)
            at = torch.tensor(fresh, device=tensor.device)
            places, contents = self._saved.setdefault(name, ([], []))
            places.append(at)
            contents.append(tensor.index_select(0, at))


def _row_sums(tensor: Tensor) -> Tensor:
    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    bits = tensor.contiguous().view(widths[tensor.dtype.itemsize])
    return bits.flatten(1).sum(1, dtype=torch.int64) if bits.dim() > 1 else bits.to(torch.int64)
