"""Which operations a replay needs: constants are computed once, dead results not at all."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, cast

import torch

from firstlight.graphs.backends.tape.record import OpCall, Origin, Place, Recording, map_nested


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of :func:`fold`.

    Attributes:
        ops: what is replayed, in order.
        constants: storages whose contents at the end of the recording serve every replay.
        n_folded: operations whose result is among the constants.
        n_dropped: operations whose result nobody reads.
    """

    ops: tuple[OpCall, ...]
    constants: frozenset[int]
    n_folded: int
    n_dropped: int


def fold(recording: Recording) -> Folded:
    """Split a recording into constants and operations to replay.

    An operation is folded if it reads only weights, host numbers and other constants and writes
    only constants. A storage stops being a constant as soon as a replayed operation writes it, or
    a constant is written into it after a replayed operation has read it: then all its writers are
    replayed.
    """
    constants = {
        s.index for s in recording.storages if s.origin is Origin.MADE and s.held is not None
    }
    fixed = {s.index for s in recording.storages if s.origin is Origin.FROZEN}
    fixed -= {i for op in recording.ops for i in op.writes}
    while True:
        replayed = [op for op in recording.ops if not _is_constant(op, constants, fixed)]
        variable = {i for op in replayed for i in op.writes} & constants
        variable |= _overwritten_after_use(recording.ops, constants, fixed)
        if not variable:
            break
        constants -= variable
    live = _without_dead(recording, replayed)
    used = {recording.output.storage}.union(*(op.reads for op in live))
    return Folded(
        tuple(live), frozenset(constants & used), len(recording.ops) - len(replayed),
        len(replayed) - len(live),
    )  # fmt: skip


def _is_constant(op: OpCall, constants: set[int], fixed: set[int]) -> bool:
    return (
        not op.effect
        and all(i in constants or i in fixed for i in op.reads)
        and all(i in constants for i in op.writes)
    )


def _overwritten_after_use(ops: list[OpCall], constants: set[int], fixed: set[int]) -> set[int]:
    """Constants that had another value when a replayed operation read them."""
    read: set[int] = set()
    found: set[int] = set()
    for op in ops:
        if _is_constant(op, constants, fixed):
            found.update(i for i in op.writes if i in read)
        else:
            read.update(i for i in op.reads if i in constants)
    return found


def _without_dead(recording: Recording, ops: list[OpCall]) -> list[OpCall]:
    """Drop operations that write only intermediates which nothing reads afterwards."""
    storages = recording.storages
    wanted = {recording.output.storage}
    live: list[OpCall] = []
    for op in reversed(ops):
        outside = any(storages[i].origin is not Origin.MADE for i in op.writes)
        if op.effect or outside or any(i in wanted for i in op.writes):
            live.append(op)
            wanted.update(op.reads)
    live.reverse()
    return live


class ConstantPool:
    """Constants shared by the graphs of one backend, by how they were computed.

    Two buckets that dequantise the same weight, or make the same table, hold it once.
    """

    def __init__(self) -> None:
        self._storages: dict[Hashable, torch.UntypedStorage] = {}
        self._names: dict[Hashable, int] = {}

    def share(self, recording: Recording, constants: frozenset[int]) -> dict[int, int]:
        """Replace equal constants of ``recording`` by those already held.

        Returns:
            for each constant the bytes that were newly taken, 0 where it was shared.
        """
        keys = _expressions(recording, self._names)
        fresh: dict[int, int] = {}
        for index in sorted(constants):
            record = recording.storages[index]
            assert record.held is not None
            key = (keys[index], record.held.nbytes()) if index in keys else None
            known = None if key is None else self._storages.get(key)
            fresh[index] = record.held.nbytes() if known is None else 0
            if known is not None:
                record.held = known
            elif key is not None:
                self._storages[key] = record.held
        return fresh


def _expressions(recording: Recording, names: dict[Hashable, int]) -> dict[int, Hashable]:
    """For each storage a value that is equal for two storages only if their contents are.

    ``names`` numbers the expressions met so far. An expression holds the numbers of its operands,
    not the operands: nested, a chain that uses each result twice would double at every step.
    """
    keys: dict[int, Hashable] = {}
    for record in recording.storages:
        if record.origin is Origin.FROZEN and record.held is not None:
            keys[record.index] = ("at", record.held._cdata)
        elif record.content is not None:
            keys[record.index] = ("host", record.content)
        elif record.held is not None and record.owner.startswith("host value"):
            keys[record.index] = ("unique", record.held._cdata)
    for op in recording.ops:
        if any(i not in keys for i in op.reads if i not in op.writes):
            for i in op.writes:
                keys.pop(i, None)
            continue
        key = (op.func, _hashable((op.args, sorted(op.kwargs.items())), keys))
        for position, index in enumerate(op.writes):
            keys[index] = names.setdefault((key, position, keys.get(index)), len(names))
    return keys


def _hashable(value: Any, keys: dict[int, Hashable]) -> Hashable:
    def leaf(item: Any) -> Any:
        if isinstance(item, Place):
            key = keys.get(item.storage)
            return (key, item.offset, item.size, item.stride, item.dtype)
        # 1, 1.0 and True are equal keys but different values to an operation.
        return (type(item), item) if isinstance(item, Hashable) else (type(item), id(item))

    return cast(Hashable, _tuples(map_nested(leaf, value)))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, (list, tuple)) else value
