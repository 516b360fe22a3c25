"""A taped graph: prepared calls over fixed memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from firstlight.graphs.backend import Piece
from firstlight.graphs.backends.tape.host import host_bytes
from firstlight.graphs.backends.tape.record import OpCall, Origin, Place


@dataclass(frozen=True, slots=True)
class Constant:
    """A value computed once, at capture. ``n_bytes`` is 0 where another graph already held it."""

    origin: str
    tensor: torch.Tensor
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Region:
    """Addresses ``[start, end)`` and whose they are, e.g. ``weight layers.0.norm.weight``.

    Attributes:
        index: the number that a :class:`Place` names the region by.
        origin: weight, slot or pool, or made by the body.
        storage, offset: the memory, and the byte in it where the region starts.
        scratch: an intermediate; others may take turns at its addresses.
    """

    start: int
    end: int
    owner: str
    index: int
    origin: Origin
    storage: torch.UntypedStorage
    offset: int
    scratch: bool


@dataclass(frozen=True, slots=True)
class CaptureSeconds:
    """Where the time of a capture went."""

    record: float
    plan: float
    forms: float

    @property
    def total(self) -> float:
        return self.record + self.plan + self.forms


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the operations that the body issued.

    Attributes:
        replayed: operations of one replay, however few calls issue them.
        views: operations that moved no data.
        folded: computed once, at capture.
        dropped: results that nobody reads.
    """

    replayed: int
    views: int
    folded: int
    dropped: int


@dataclass(frozen=True, slots=True)
class Step:
    """One replayed operation and the form chosen for it."""

    op: OpCall
    form: str


class TapeGraph:
    """Replays the recorded operations in order; no module code runs.

    Not thread-safe, and graphs that share a scratch arena must not run at the same time.
    """

    def __init__(
        self,
        label: str,
        calls: Sequence[Callable[[], object]],
        steps: Sequence[Step],
        output: torch.Tensor,
        *,
        constants: tuple[Constant, ...],
        regions: tuple[Region, ...],
        counts: Counts,
        times: CaptureSeconds,
        scratch_bytes: int,
        fresh_bytes: int,
        pinned_bytes: int = 0,
    ) -> None:
        self.label = label
        self.output = output
        self.steps = tuple(steps)
        self.constants = constants
        self.counts = counts
        self.times = times
        self.scratch_bytes = scratch_bytes
        self._fresh_bytes = fresh_bytes
        self._pinned_bytes = pinned_bytes
        self._calls = tuple(calls)
        self._regions = regions

    @property
    def bytes(self) -> int:
        """Memory allocated for this graph alone: its growth of the arena, and its constants."""
        return sum(n_bytes for _, _, n_bytes in self.memory)

    @property
    def memory(self) -> tuple[tuple[str, str, int], ...]:
        """(kind, piece, bytes) of :attr:`bytes`."""
        constants = (("constant", c.origin, c.n_bytes) for c in self.constants)
        scratch = ("scratch", self.label, self._fresh_bytes)
        return (scratch, ("pinned output", self.label, self._pinned_bytes), *constants)

    def host_bytes(self, seen: set[int]) -> int:
        """Bytes of calls and records, an estimate; of what is in ``seen``, nothing."""
        return host_bytes((self.steps, self._calls, self._regions, self.constants), seen)

    @property
    def seconds(self) -> float:
        """Wall time of the capture."""
        return self.times.total

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of the capture by what they were spent on."""
        times = self.times
        return {"record": times.record, "plan": times.plan, "choosing forms": times.forms}

    @property
    def ops(self) -> int:
        """Operations of one replay."""
        return self.counts.replayed

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """One piece: a tape has no breaks."""
        return (Piece("graph", self.label, self.ops),)

    def replay(self) -> torch.Tensor:
        """Run on what the slots hold now.

        Returns:
            The captured output, the same tensor every time. It holds until the next replay of a
            graph that shares the scratch arena.
        """
        # Below autograd a call costs about half of what it does under no_grad.
        with torch.inference_mode():
            for call in self._calls:
                call()
        return self.output

    @property
    def calls(self) -> tuple[Callable[[], object], ...]:
        """The calls of one replay, in order: one a step, or one for several that were lowered."""
        return self._calls

    @property
    def regions(self) -> tuple[Region, ...]:
        """All memory that a replay reads or writes."""
        return self._regions

    def owner_of(self, address: int) -> str | None:
        """Whose memory an address is; None if the graph does not touch it.

        Intermediates that take turns at an address are all named.
        """
        owners = [r.owner for r in self._regions if r.start <= address < r.end]
        return "; then ".join(owners) or None

    def dump(self) -> str:
        """One line per replayed operation: results, name, arguments, form, source line."""
        lines = [
            f"{self.label}: {self.counts.replayed} ops, {self.counts.views} views, "
            f"{self.counts.folded} folded, {self.counts.dropped} dropped, "
            f"{len(self.constants)} constants, scratch {self.scratch_bytes} bytes"
        ]
        for number, step in enumerate(self.steps):
            op = step.op
            results = ", ".join(str(p) for p in op.outputs if p is not None)
            given = [*op.args, *(f"{k}={_show(v)}" for k, v in op.kwargs.items())]
            arguments = ", ".join(_show(a) for a in given)
            arrow = f"{results} = " if results else ""
            lines.append(f"{number:4d} {arrow}{op.name}({arguments})  [{step.form}]  {op.where}")
        return "\n".join(lines)


def _show(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_show(v) for v in value) + "]"
    if isinstance(value, (Place, str)):
        return str(value)
    return "opaque" if isinstance(value, torch.Tensor) else repr(value)
