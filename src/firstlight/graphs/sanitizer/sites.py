"""The places that a trial poisons, each with the fault that a read of it would be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.sanitizer.audit import Fault
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.memory import (
    SINK,
    Footprint,
    PagedMemory,
    Snapshot,
    compact,
)
from firstlight.graphs.sanitizer.poison import (
    Poison,
    bits,
    far_apart,
    pattern,
    poison_,
)
from firstlight.graphs.sanitizer.slots import beyond_, padding_
from firstlight.graphs.slot import Axis, Extent, Meaning, Padding

Fill = Callable[[Tensor, Poison], None]


@dataclass(frozen=True, slots=True)
class Site:
    """One kind of memory that must not matter.

    Attributes:
        apply: poisons it; None for intermediates, which the replay itself poisons.
    """

    kind: FindingKind
    subject: str
    detail: str
    apply: Callable[[], None] | None


def intermediates() -> Site:
    """All scratch memory of the graph."""
    return Site(FindingKind.STALE_INTERMEDIATE, "intermediates", "intermediates start as NaN", None)


def slot_sites(
    registry: SlotRegistry, live: Extent, padded: Extent, poison: Poison, fill: Fill = poison_
) -> Iterator[Site]:
    """Padding rows of float slots, and rows beyond the bucket of all slots.

    Padding rows of integer slots are not poisoned: a body may gather with them, which is why they
    are neutral; that they are is checked before. A slot that keeps what was there is promised not
    to be read, and is poisoned whatever its type.

    Args:
        fill: what poisons memory.
    """
    for name in registry.names:
        spec = registry.spec(name)
        if spec.axis is Axis.NONE:
            continue
        n, end = live.on(spec.axis), padded.on(spec.axis)
        data = spec.dtype.is_floating_point and spec.meaning is Meaning.VALUE
        keeps = spec.padding is Padding.KEEP
        if end > n and (keeps or (data and spec.padding is not Padding.FILL_ONCE)):
            yield Site(
                FindingKind.PADDING_READ,
                f"slot {name}",
                f"padding rows {n}-{end - 1}",
                partial(fill, padding_(registry, spec, live, padded), poison),
            )
        tail = beyond_(registry, spec, padded)
        if tail.numel():
            rows = tail.shape[spec.dim]
            yield Site(
                FindingKind.BEYOND_BUCKET_READ,
                f"slot {name}",
                f"rows {end}-{end + rows - 1} beyond the bucket",
                partial(fill, tail, poison),
            )


class MemorySites:
    """The pools of one batch: what is poisoned, and what it must look like afterwards.

    Args:
        use: the token slots that the batch reads and writes.
        before: the pools as they were.
    """

    def __init__(
        self, memory: PagedMemory, use: Footprint, before: Snapshot, poison: Poison
    ) -> None:
        self._memory = memory
        self._before = before
        self._poison = poison
        n = memory.n_pages * memory.page_size
        legal = use.in_range(n)
        self._writes = _mask(n, legal.writes)
        self._sink = _mask(n, slice(SINK, memory.page_size))
        reads = _mask(n, legal.reads)
        self._foreign = ~reads & ~self._writes & ~self._sink

    def sites(self) -> Iterator[Site]:
        """Memory of others, the sink, and the rows that this step stores."""
        name = self._memory.name
        yield Site(
            FindingKind.UNUSED_MEMORY_READ,
            name,
            "token slots that no row of the batch sees",
            lambda: self._fill(self._foreign),
        )
        yield Site(
            FindingKind.UNUSED_MEMORY_READ,
            f"{name}, sink page",
            "the sink page, which padding rows write",
            lambda: self._fill(self._sink),
        )
        yield Site(
            FindingKind.MEMORY_UNWRITTEN,
            f"{name}, rows of this step",
            "token slots that this step has to store before it attends to them",
            lambda: self._fill(self._writes & ~self._sink),
        )

    def check(
        self, stored: Callable[[str, Tensor], tuple[str, str] | None], *, spread: bool
    ) -> Iterator[Fault]:
        """Compare the pools after a trial with all sites.

        Args:
            stored: the operation, and its line, that writes a pool of that name; None if none.
            spread: NaN got into live rows. What is stored then may be NaN of the poison's very
                bits, and is not told from what was not stored.
        """
        for name, rows in self._rows():
            by = stored(name, rows)
            op, where = by or ("", "")
            changed = self._changed(rows)
            foreign = changed & ~self._writes & ~self._sink
            if bool(foreign.any()):
                at = foreign.nonzero().flatten().tolist()
                detail = f"{self._memory.place(at[0])} changed (token slots {compact(at)})"
                yield Fault(FindingKind.FOREIGN_WRITE, name, detail, op, where)
            missed = self._writes & ~self._sink & ~changed
            if by is not None and not spread and bool(missed.any()):
                at = missed.nonzero().flatten().tolist()
                detail = f"nothing was stored at {self._memory.place(at[0])} ({len(at)} rows)"
                yield Fault(FindingKind.MEMORY_UNWRITTEN, name, detail, op, where)

    def stored(self, after: Snapshot, tolerance: float) -> str:
        """How the rows of this step differ from what they were in ``after``; "" if not at all.

        Args:
            tolerance: in units of the largest value; 0 compares bits.
        """
        mine = (self._writes & ~self._sink).nonzero().flatten()
        for name, rows in self._rows():
            at = mine.to(rows.device)
            differs = far_apart(rows[at], after.copy_of(rows)[at], tolerance).flatten(1).any(1)
            if bool(differs.any()):
                return f"{name} stores other values at {self._memory.place(int(at[differs][0]))}"
        return ""

    def check_plain(self) -> Iterator[Fault]:
        """Compare the pools after an unpoisoned run."""
        for name, rows in self._rows():
            changed = bits(rows).ne(bits(self._before.copy_of(rows))).flatten(1).any(1).cpu()
            foreign = changed & ~self._writes & ~self._sink
            if bool(foreign.any()):
                at = foreign.nonzero().flatten().tolist()
                detail = f"{self._memory.place(at[0])} changed (token slots {compact(at)})"
                yield Fault(FindingKind.FOREIGN_WRITE, name, detail)

    def _rows(self) -> Iterator[tuple[str, Tensor]]:
        """The pools that the graphs own; others, put in their place later, hold nothing of them."""
        return (pair for pair in self._memory.rows() if self._before.covers(pair[1]))

    def _fill(self, mask: Tensor) -> None:
        places = mask.nonzero().flatten()
        for _, rows in self._rows():
            at = places.to(rows.device)
            if rows.dtype.is_floating_point and self._poison is Poison.FINITE:
                rows[at] = _like(rows, self._poison)
            else:
                bits(rows).index_fill_(0, at, pattern(rows.dtype))

    def _changed(self, rows: Tensor) -> Tensor:
        """Token slots that do not hold what the sites left there."""
        expected = bits(self._before.copy_of(rows)).clone()
        poisoned = (self._foreign | self._sink | self._writes).nonzero().flatten()
        expected.index_fill_(0, poisoned.to(rows.device), int(bits(_like(rows, self._poison))))
        return bits(rows).ne(expected).flatten(1).any(1).cpu()


def _like(rows: Tensor, poison: Poison) -> Tensor:
    """One poisoned element of the dtype of ``rows``."""
    one = torch.zeros((), dtype=rows.dtype, device=rows.device)
    poison_(one, poison)
    return one


def _mask(n: int, at: Tensor | slice) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool, device="cpu")
    mask[at] = True
    return mask
