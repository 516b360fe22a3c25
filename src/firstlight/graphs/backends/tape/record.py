"""What a capture writes down: storages, places in them, and the operations between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch
from torch._ops import OpOverload


@dataclass(frozen=True, slots=True)
class Place:
    """Where a tensor lies: storage index, offset and strides in elements of ``dtype``."""

    storage: int
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"%{self.storage}{list(self.size)}:{dtype}"


class Origin(Enum):
    """Where a storage came from."""

    FROZEN = "frozen"  # a weight: contents never change
    OWNED = "owned"  # a slot or pool: somebody else keeps and changes it
    MADE = "made"  # by an operation of the body


@dataclass(slots=True)
class StorageRecord:
    """One storage that a recorded operation touches.

    Attributes:
        held: a strong reference. Kept for owned memory and for what may turn out constant;
            intermediates are not held, so that recording needs no more memory than eager.
        content: for values that came from the host, the bytes themselves (small ones only).
    """

    index: int
    origin: Origin
    owner: str
    n_bytes: int
    held: torch.UntypedStorage | None
    device: torch.device
    content: object = None


@dataclass(slots=True)
class OpCall:
    """One recorded operation; tensors in ``args`` and ``kwargs`` are :class:`Place` s.

    Attributes:
        outputs: the returned tensors in order, lists flattened; None where the operation returned
            an argument or a view of one.
        effect: it must run even if nobody reads what it writes.
    """

    func: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Place | None, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    where: str
    effect: bool

    @property
    def name(self) -> str:
        """E.g. ``aten.mm.default``."""
        return str(self.func)


@dataclass(slots=True)
class Recording:
    """A finished recording; ``views`` operations only described other tensors' memory."""

    ops: list[OpCall] = field(default_factory=list)
    storages: list[StorageRecord] = field(default_factory=list)
    views: int = 0
    output: Place = field(default_factory=lambda: Place(-1, 0, (), (), torch.float32))


def map_nested(fn: Callable[[Any], Any], value: Any) -> Any:
    """Apply ``fn`` to every leaf of nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        return type(value)(map_nested(fn, v) for v in value)
    return fn(value)


def leaves(value: Any) -> Iterator[Any]:
    """Every leaf of nested lists, tuples and dict values."""
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from leaves(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from leaves(v)
    else:
        yield value
