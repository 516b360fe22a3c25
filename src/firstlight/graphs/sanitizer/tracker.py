"""Counts how often each element of a slot is written between two fills.

Covered: everything that goes through :meth:`SlotRegistry.write`, through the tensor of
:meth:`SlotRegistry.target`, or through the rows that a runner hands to the merge -- assignments,
in-place methods and ``out=`` on it and on its views. A write through another view of the same
memory (``registry.buffer``) is not counted; that such a row was written at all is seen by its
poison.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from firstlight.graphs.backends.tape.source import caller
from firstlight.graphs.registry import SlotRegistry

_AUGMENTED = frozenset(f"__i{op}__" for op in ("add", "sub", "mul", "truediv", "pow"))


class WriteCounts:
    """Write counts of one slot's buffer, and where rows were written that had been already."""

    def __init__(self, buffer: Tensor) -> None:
        self._base = buffer.storage_offset()
        self._storage = buffer.untyped_storage().data_ptr()
        self.counts = torch.zeros(buffer.shape, dtype=torch.int16, device=buffer.device)
        self.again = ""

    def reset(self) -> None:
        """A new step begins."""
        self.counts.zero_()
        self.again = ""

    def covers(self, tensor: Tensor) -> bool:
        """Whether ``tensor`` is a view of this buffer."""
        return tensor.untyped_storage().data_ptr() == self._storage

    def add(self, target: Tensor, how: Callable[[Tensor], None]) -> None:
        """Count a write into ``target``; ``how`` counts it in the view of the same geometry."""
        offset = target.storage_offset() - self._base
        view = self.counts.as_strided(target.shape, target.stride(), offset)
        how(view)
        if not self.again and bool((view > 1).any()):
            self.again = caller()


class TrackedRows(Tensor):
    """Rows of a slot that count what is written into them and into their views."""

    _counts: WriteCounts

    @classmethod
    def of(cls, rows: Tensor, counts: WriteCounts) -> TrackedRows:
        """``rows`` with a counter; the same memory."""
        tracked = rows.as_subclass(cls)
        tracked._counts = counts
        return tracked

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        counts = next((a._counts for a in _all(args, kwargs) if isinstance(a, TrackedRows)), None)
        with torch._C.DisableTorchFunctionSubclass():
            plain = tuple(_plain(a) for a in args)
            named = {k: _plain(v) for k, v in kwargs.items()}
            result = func(*plain, **named)
            if counts is None:
                return result
            _count(counts, func.__name__, plain, named)
            if isinstance(result, Tensor) and counts.covers(result):
                return TrackedRows.of(result, counts)
            if isinstance(result, (list, tuple)):
                return type(result)(
                    TrackedRows.of(r, counts)
                    if isinstance(r, Tensor) and counts.covers(r)
                    else r
                    for r in result
                )  # fmt: skip
        return result


def _all(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    found: list[Any] = []
    for value in (*args, *kwargs.values()):
        found += value if isinstance(value, (list, tuple)) else [value]
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, TrackedRows):
        return value.as_subclass(Tensor)
    if isinstance(value, (list, tuple)) and any(isinstance(v, TrackedRows) for v in value):
        return type(value)(_plain(v) for v in value)
    return value


def _count(counts: WriteCounts, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Count what ``name`` wrote; functions that write end in an underscore or take ``out``."""
    out = kwargs.get("out")
    if isinstance(out, Tensor) and counts.covers(out):
        counts.add(out, lambda view: _add_whole(view))
    target = args[0] if args else None
    if not isinstance(target, Tensor) or not counts.covers(target):
        return
    if name == "__setitem__":
        counts.add(target, lambda view: _add_at(view, args[1]))
    elif name in _AUGMENTED or (name.endswith("_") and not name.endswith("__")):
        counts.add(target, lambda view: _add_method(view, name, args[1:], kwargs))


def _add_whole(view: Tensor) -> None:
    view.add_(1)


def _add_at(view: Tensor, index: Any) -> None:
    items = index if isinstance(index, tuple) else (index,)
    if any(isinstance(i, Tensor) and i.dtype is not torch.bool for i in items):
        tensors = tuple(i if isinstance(i, Tensor) else None for i in items)
        if all(t is not None for t in tensors):
            ones = torch.ones((), dtype=view.dtype, device=view.device)
            view.index_put_(tensors, ones, accumulate=True)
            return
    view[index] += 1


def _add_method(view: Tensor, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = [*args, *kwargs.values()]
    if name in ("index_copy_", "index_fill_", "index_add_") and len(given) >= 2:
        dim, index = given[0], given[1]
        shape = list(view.shape)
        shape[dim] = len(index)
        view.index_add_(dim, index, view.new_ones(shape))
    elif name in ("masked_fill_", "masked_scatter_") and given:
        view.add_(given[0].expand(view.shape).to(view.dtype))
    elif name in ("scatter_", "scatter_add_") and len(given) >= 2:
        view.scatter_add_(given[0], given[1], view.new_ones(given[1].shape))
    elif name == "index_put_" and given:
        ones = torch.ones((), dtype=view.dtype, device=view.device)
        view.index_put_(tuple(given[0]), ones, accumulate=True)
    elif name not in ("requires_grad_", "share_memory_", "detach_"):
        view.add_(1)


class TrackedRegistry(SlotRegistry):
    """A registry that counts writes into the slots that the merge fills."""

    def allocate(self) -> None:
        """Allocate, and make a counter for each slot that no fill copies."""
        super().allocate()
        self._counts = {
            name: WriteCounts(self.buffer(name))
            for name in self.names
            if not self._specs[name].copied and self._specs[name].hook is None
        }

    def counts(self, name: str) -> WriteCounts | None:
        """The counter of a slot, None if its writes are not counted."""
        return self._counts.get(name)

    def reset_counts(self) -> None:
        """A new step begins."""
        for counts in self._counts.values():
            counts.reset()

    def track(self, name: str, rows: Tensor) -> Tensor:
        """``rows``, a view of the slot, such that writes are counted."""
        counts = self._counts.get(name)
        return rows if counts is None else TrackedRows.of(rows, counts)

    def target(self, name: str, rows: Tensor, start: int, segment: str | None = None) -> Tensor:
        """The checked destination of a write, counted."""
        return self.track(name, super().target(name, rows, start, segment))
