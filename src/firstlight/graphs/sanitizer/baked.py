"""Compares two recordings of one body: what differs depends on the batch, and would be baked in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from firstlight.graphs.backends.tape.record import OpCall, Place, Recording, map_nested
from firstlight.graphs.sanitizer.audit import Fault
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.memory import compact
from firstlight.graphs.sanitizer.poison import far_apart


@dataclass(frozen=True, slots=True)
class Signature:
    """What a graph fixes: operations with their arguments, and values that came from the host.

    Attributes:
        ops: name, arguments as text, line.
        host: owner (``host value at file:line``) and contents, in order of appearance.
    """

    ops: tuple[tuple[str, str, str], ...]
    host: tuple[tuple[str, bytes], ...]


def signature(recording: Recording, moving: Collection[str] = ()) -> Signature:
    """The signature of a recording; holds no tensor.

    Args:
        moving: owners whose memory is replaced by other, of another size, between two batches.
    """
    named = {s.index: s.owner for s in recording.storages if s.owner in moving}
    ops = tuple((op.name, _arguments(op, named), op.where) for op in recording.ops)
    host = tuple(
        (record.owner, _content(record.content, record.held))
        for record in recording.storages
        if record.owner.startswith("host value")
    )
    return Signature(ops, host)


def differences(first: Signature, second: Signature) -> Iterator[Fault]:
    """What of the first recording the second one does otherwise; one fault a line."""
    for (owner, before), (other, after) in zip(first.host, second.host, strict=False):
        if owner == other and before != after:
            where = owner.removeprefix("host value at ")
            yield _fault("a tensor made from host numbers", "host value", where)
    seen: set[str] = set()
    for (name, before_text, where), (other_name, after_text, other_where) in zip(
        first.ops, second.ops, strict=False
    ):
        if (name, where) != (other_name, other_where):
            yield _fault(f"the operations themselves: {name}, then {other_name}", name, where)
            return
        if before_text != after_text and where not in seen:
            seen.add(where)
            yield _fault(f"arguments {before_text}, then {after_text}", name, where)
    if len(first.ops) != len(second.ops):
        name, _, where = max(first.ops, second.ops, key=len)[min(len(first.ops), len(second.ops))]
        detail = f"the number of operations: {len(first.ops)}, then {len(second.ops)}"
        yield _fault(detail, name, where)


def other_results(replayed: Tensor, computed: Tensor, tolerance: float = 0.0) -> Iterator[Fault]:
    """Live rows of a replay that are not what the body computed for the same batch.

    Args:
        tolerance: in units of the largest value; 0 compares bits.
    """
    now = computed[: len(replayed)]
    differs = far_apart(replayed, now, tolerance) & ~(replayed.isnan() & now.isnan())
    if bool(differs.any()):
        rows = compact(differs.flatten(1).any(1).nonzero().flatten().tolist())
        most = float((replayed - now).abs().max())
        detail = f"live rows {rows} of the replay differ from the body's by up to {most:.3g}"
        yield Fault(FindingKind.REPLAY_DIFFERS, "graph", detail)


def _fault(what: str, op: str, where: str) -> Fault:
    detail = f"differs between two batches of one shape, and a graph keeps the first: {what}"
    return Fault(FindingKind.BAKED_CONSTANT, op, detail, op, where)


def _arguments(op: OpCall, owners: Mapping[int, str]) -> str:
    def leaf(value: Any) -> Any:
        if isinstance(value, Place):
            if value.storage in owners:
                return owners[value.storage]
            return f"{value}+{value.offset}{list(value.stride)}"
        return "opaque" if isinstance(value, Tensor) else value

    named = {k: map_nested(leaf, v) for k, v in op.kwargs.items()}
    return ", ".join(
        [*(str(map_nested(leaf, a)) for a in op.args), *(f"{k}={v}" for k, v in named.items())]
    )


def _content(content: object, held: torch.UntypedStorage | None) -> bytes:
    if isinstance(content, bytes):
        return content
    if held is None:
        return b""
    return torch.empty(0, dtype=torch.uint8, device=held.device).set_(held).cpu().numpy().tobytes()
