"""A captured body on CUDA: graph pieces around eager calls, over memory of one arena."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from firstlight.graphs.backend import Piece
from firstlight.graphs.backends.cuda.api import CapturedPiece
from firstlight.graphs.backends.cuda.cut import CapturePlan
from firstlight.graphs.backends.tape.graph import Constant
from firstlight.graphs.backends.tape.host import host_bytes
from firstlight.graphs.backends.tape.record import leaves, map_nested


@dataclass(frozen=True, slots=True)
class CaptureSeconds:
    """Where the time of a capture went: ``warm up`` are whole runs before it."""

    record: float
    plan: float
    warm: float
    capture: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.record + self.plan + self.warm + self.capture


@dataclass(frozen=True, slots=True)
class CaptureBytes:
    """Memory that exists for one graph.

    Attributes:
        scratch: what the shared arena grew by; intermediates and bridges lie there.
        pool: by piece, what torch's allocator grew by while the piece was captured.
        driver: what the device lost beside all that: the graphs' own nodes and kernels.
    """

    scratch: int
    pool: tuple[tuple[str, int], ...]
    driver: int


@dataclass(frozen=True, slots=True)
class Insides:
    """What lies between the parts of a graph, for those who look at it there.

    Attributes:
        block: the memory that holds every intermediate.
        output: the storage of the result, as an index of the plan.
        handed: by part, what it leaves for later parts: bridges, and the result.
    """

    block: torch.UntypedStorage
    output: int
    handed: tuple[tuple[torch.Tensor, ...], ...]


@dataclass(slots=True)
class EagerCall:
    """An operation that every replay issues itself, on tensors of fixed addresses.

    Attributes:
        outs: where its results go, in order: later pieces read them there. None where nobody reads
            a result, or it is an argument.
    """

    fn: Callable[..., object]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    outs: tuple[torch.Tensor | None, ...] = ()

    def replay(self) -> None:
        """Issue it on the current stream."""
        result = self.fn(*self.args, **self.kwargs)
        if self.outs:
            found = [t for t in leaves(result) if isinstance(t, torch.Tensor)]
            for out, value in zip(self.outs, found, strict=True):
                if out is not None:
                    out.copy_(value)

    def rebind(self, moved: Mapping[int, torch.Tensor]) -> int:
        """Use other tensors from now on; returns how many arguments changed.

        Args:
            moved: the new tensor by the ``untyped_storage()._cdata`` of the old one.
        """
        changed = 0

        def leaf(value: Any) -> Any:
            nonlocal changed
            if not isinstance(value, torch.Tensor):
                return value
            other = moved.get(value.untyped_storage()._cdata)
            changed += other is not None
            return value if other is None else other

        self.args = tuple(map_nested(leaf, self.args))
        self.kwargs = {name: map_nested(leaf, v) for name, v in self.kwargs.items()}
        return changed


Part = CapturedPiece | EagerCall


class SegmentedGraph:
    """Replays graph pieces and eager calls in the order of its plan; no module code runs.

    Not thread-safe, and graphs that share an arena must not run at the same time.

    Attributes:
        plan: the segments, what each reads and writes, and the bridges between them.
        insides: what lies between the segments.
        calls: what a replay calls, one a segment.
    """

    def __init__(
        self,
        label: str,
        plan: CapturePlan,
        parts: Sequence[Part],
        output: torch.Tensor,
        *,
        keep: Sequence[object],
        insides: Insides,
        constants: tuple[Constant, ...],
        taken: CaptureBytes,
        times: CaptureSeconds,
    ) -> None:
        self.label = label
        self.plan = plan
        self.output = output
        self.insides = insides
        self.constants = constants
        self.taken = taken
        self.times = times
        self._parts = tuple(parts)
        # What captured kernels address is held here, whatever else lets go of it.
        self._keep = tuple(keep)
        self.calls = tuple(partial(part.replay) for part in self._parts)

    @property
    def bytes(self) -> int:
        """Memory that exists for this graph alone."""
        return sum(n for _, _, n in self.memory)

    @property
    def memory(self) -> tuple[tuple[str, str, int], ...]:
        """(kind, piece, bytes) of :attr:`bytes`."""
        pools = (("graph", f"pool of {piece}", n) for piece, n in self.taken.pool)
        constants = (("constant", c.origin, c.n_bytes) for c in self.constants)
        scratch = ("scratch", self.label, self.taken.scratch)
        return (scratch, *pools, ("graph", "driver", self.taken.driver), *constants)

    def host_bytes(self, seen: set[int]) -> int:
        """Bytes of calls and records, an estimate; of what is in ``seen``, nothing."""
        return host_bytes((self.plan, self.constants), seen)

    @property
    def seconds(self) -> float:
        """Wall time of the capture."""
        return self.times.total

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of the capture by what they were spent on."""
        times = self.times
        return {
            "record": times.record, "plan": times.plan, "warm up": times.warm,
            "capture": times.capture,
        }  # fmt: skip

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Graph pieces and eager calls in the order of a replay."""
        return tuple(Piece(s.kind.value, s.label, len(s.items)) for s in self.plan.segments)

    def rebind(self, moved: Mapping[int, torch.Tensor]) -> int:
        """Give the eager calls other tensors, e.g. a KV pool of another size.

        What captured pieces address cannot be moved: the caller sees to it that they do not use
        any of these (:meth:`captured_owners`).

        Args:
            moved: the new tensor by the ``untyped_storage()._cdata`` of the old one.

        Returns:
            how many arguments were replaced.
        """
        return sum(call.rebind(moved) for call in self.eager_calls)

    @property
    def eager_calls(self) -> tuple[EagerCall, ...]:
        """The calls between pieces, in order."""
        return tuple(part for part in self._parts if isinstance(part, EagerCall))

    def captured_owners(self) -> frozenset[str]:
        """The owners of all memory that captured pieces address."""
        graphs = (s for s in self.plan.segments if s.kind.value == "graph")
        return frozenset(self.plan.owners[i] for s in graphs for i in (*s.reads, *s.writes))

    def replay(self) -> torch.Tensor:
        """Run on what the slots hold now, on the current stream.

        Returns:
            The captured output, the same tensor every time. It holds until the next replay of a
            graph that shares the arena.
        """
        with torch.inference_mode():
            for call in self.calls:
                call()
        return self.output

    def dump(self) -> str:
        """The plan as text."""
        return "\n".join((f"{self.label}:", *self.plan.lines()))
