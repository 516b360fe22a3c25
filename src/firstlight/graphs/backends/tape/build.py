"""Turns a plan into tensors over fixed memory, and operations into calls on them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch._ops import OpOverload

from firstlight.graphs.arena import ScratchArena
from firstlight.graphs.backends.tape.choose import FormChooser
from firstlight.graphs.backends.tape.graph import Constant, Region, Step
from firstlight.graphs.backends.tape.plan import MemoryPlan
from firstlight.graphs.backends.tape.record import OpCall, Origin, Place, Recording, map_nested


class Memory:
    """The tensors of one graph, made over weights, slots, constants and scratch memory."""

    def __init__(
        self, recording: Recording, plan: MemoryPlan, scratch: ScratchArena, *, pin_output: bool
    ) -> None:
        block = scratch.reserve(plan.n_bytes)
        self.fresh_bytes = block.fresh
        self.pinned_bytes = 0
        self.offsets = plan.offsets
        self._recording = recording
        self.block = block.storage
        self._pinned: dict[int, torch.UntypedStorage] = {}
        self._tensors: dict[Place, torch.Tensor] = {}
        output = recording.output
        if pin_output and output.storage in plan.offsets:
            n_bytes = recording.storages[output.storage].n_bytes
            kept = torch.empty(n_bytes, dtype=torch.uint8, device=scratch.device)
            self._pinned[output.storage] = kept.untyped_storage()
            self.pinned_bytes = n_bytes

    def tensor(self, place: Place) -> torch.Tensor:
        """The tensor at ``place``; one object per place."""
        tensor = self._tensors.get(place)
        if tensor is None:
            storage, start = self.where(place.storage)
            offset = start // place.dtype.itemsize + place.offset
            tensor = torch.empty(0, dtype=place.dtype, device=storage.device)
            tensor.set_(storage, offset, place.size, place.stride)
            self._tensors[place] = tensor
        return tensor

    def where(self, index: int) -> tuple[torch.UntypedStorage, int]:
        """The storage that now stands for a recorded one, and the byte it starts at."""
        if index in self._pinned:
            return self._pinned[index], 0
        if index in self.offsets:
            return self.block, self.offsets[index]
        held = self._recording.storages[index].held
        if held is None:  # allocated by the body, never written by anybody: empty tensors
            return self.block, 0
        return held, 0

    def contents(self, place: Place) -> torch.Tensor | None:
        """The tensor at ``place`` if what it holds now is typical: weights, constants, indices."""
        record = self._recording.storages[place.storage]
        if place.storage in self.offsets:
            return None
        values = place.dtype.is_floating_point or place.dtype.is_complex
        return None if record.origin is Origin.OWNED and values else self.tensor(place)


class Lowering(Protocol):
    """Compiles runs of neighbouring operations into one call each."""

    @property
    def form(self) -> str:
        """What a step that was lowered is said to run as."""
        ...

    @property
    def stand_ins(self) -> Mapping[OpOverload, Callable[..., Any]]:
        """What a recording may call in place of operations, see :func:`~.recorder.record`."""
        ...

    def lower(
        self, name: str, args: Sequence[Any], outs: Sequence[torch.Tensor | None]
    ) -> Sequence[Any] | None:
        """Instructions for one operation over fixed memory; None if it is not for this compiler.

        Args:
            name: of the operation, e.g. ``aten.add.Tensor``.
            outs: where its results go, in order.
        """
        ...

    def program(self, instructions: Sequence[Any]) -> Callable[[], None]:
        """One call that runs instructions in order; it keeps alive what they need."""
        ...


def build_calls(
    ops: Sequence[OpCall],
    recording: Recording,
    memory: Memory,
    chooser: FormChooser,
    lowering: Lowering | None = None,
) -> tuple[list[Callable[[], object]], list[Step]]:
    """Prepared calls for the operations: one for each run of lowered ones, else one each.

    What is not lowered gets its fastest exact form.
    """
    read = {recording.output.storage}.union(*(op.reads for op in ops))
    calls: list[Callable[[], object]] = []
    steps: list[Step] = []
    waiting: list[Any] = []

    def leaf(value: Any) -> Any:
        return memory.tensor(value) if isinstance(value, Place) else value

    def flush() -> None:
        if waiting and lowering is not None:
            calls.append(lowering.program(tuple(waiting)))
            waiting.clear()

    for op in ops:
        args = map_nested(leaf, op.args)
        if lowering is not None and not op.kwargs:
            places = [None if p is None else memory.tensor(p) for p in op.outputs]
            lowered = lowering.lower(op.name, args, places)
            if lowered is not None:
                waiting += lowered
                steps.append(Step(op, lowering.form))
                continue
        flush()
        call, form = bind_call(op, memory, chooser, read)
        calls.append(call)
        steps.append(Step(op, form))
    flush()
    return calls, steps


def bind_call(
    op: OpCall, memory: Memory, chooser: FormChooser, read: Collection[int]
) -> tuple[Callable[[], object], str]:
    """One operation over fixed memory in its chosen form, and the form's name.

    Args:
        read: storages that somebody reads; other results need no memory.
    """

    def leaf(value: Any) -> Any:
        return memory.tensor(value) if isinstance(value, Place) else value

    form = chooser.choose(op, memory.contents)
    args = map_nested(leaf, op.args)
    kwargs = {k: map_nested(leaf, v) for k, v in op.kwargs.items()}
    outs = [
        memory.tensor(p) if p is not None and (form.all_results or p.storage in read) else None
        for p in op.outputs
    ]
    return form.bind(args, kwargs, outs), form.name


def constants_of(recording: Recording, fresh: dict[int, int]) -> tuple[Constant, ...]:
    """The graph's constants as byte tensors, with what each took."""
    found = []
    for index, n_bytes in fresh.items():
        record = recording.storages[index]
        assert record.held is not None
        view = torch.empty(0, dtype=torch.uint8, device=record.held.device).set_(record.held)
        found.append(Constant(record.owner, view, n_bytes))
    return tuple(found)


def regions_of(recording: Recording, ops: Sequence[OpCall], memory: Memory) -> tuple[Region, ...]:
    """The address ranges that a replay reads or writes, with their owners."""
    touched = {recording.output.storage}.union(*((*op.reads, *op.writes) for op in ops))
    regions = []
    for index in sorted(touched):
        record = recording.storages[index]
        storage, start = memory.where(index)
        begin = storage.data_ptr() + start
        regions.append(
            Region(
                begin, begin + record.n_bytes, record.owner, index, record.origin, storage, start,
                scratch=index in memory.offsets,
            )
        )  # fmt: skip
    return tuple(regions)
