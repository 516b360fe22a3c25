"""The KV memory as the sanitizer sees it: which token slots a batch may read and write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.graphs.ownership import Ownership
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Extent
from firstlight.graphs.slots import FULL_SIDE, AttentionNames

SINK = 0  # page


@dataclass(frozen=True, slots=True)
class PagedMemory:
    """Paged pools under one physical page numbering, i.e. one side; page 0 is the sink.

    Attributes:
        pools: tensors ``[pages, page_size, ...]`` by the name that the owner declared for them.
        suffix: of the side's attention slots, see :class:`~firstlight.graphs.AttentionNames`.
        window: how many positions a row sees at most, itself included; None for its whole context.
    """

    pools: Mapping[str, Tensor]
    page_size: int
    suffix: str = FULL_SIDE
    window: int | None = None

    @property
    def slots(self) -> AttentionNames:
        """The slots that index these pools."""
        return AttentionNames(self.suffix)

    @property
    def name(self) -> str:
        """The side in words."""
        return "KV memory" + (f" of {self.suffix[1:]}" if self.suffix else "")

    def first_seen(self, start: int) -> int:
        """The earliest position that rows from position ``start`` on see."""
        return 0 if self.window is None else max(start - self.window + 1, 0)

    @property
    def n_pages(self) -> int:
        """Pages of each pool, the sink included."""
        return min((pool.shape[0] for pool in self.pools.values()), default=0)

    def rows(self) -> Iterator[tuple[str, Tensor]]:
        """Each pool as ``[token slots, ...]``."""
        for name, pool in self.pools.items():
            yield name, pool.flatten(0, 1)

    def place(self, slot: int) -> str:
        """A token slot in words: its page, and whether that is a page at an end of the pool."""
        page, offset = divmod(slot, self.page_size)
        notes = {1: ", the sink's neighbour", self.n_pages - 1: ", the last page"}
        return f"page {page}{notes.get(page, '')}, token {offset}"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Physical token slots of one side, int64 ``[n]`` each, on the host.

    Attributes:
        reads: of what the batch's rows see, request by request.
        writes: of the new rows in order.
    """

    reads: Tensor
    writes: Tensor

    def in_range(self, n_slots: int) -> Footprint:
        """Without what lies outside the pool or in nobody's range."""
        return Footprint(*(t[(t >= 0) & (t < n_slots)] for t in (self.reads, self.writes)))


def footprint_of_pages(
    requests: Iterable[tuple[Tensor, int, int]], memory: PagedMemory
) -> Footprint:
    """What a batch may touch of one side, for :meth:`SanitizingRunner.expect`.

    Args:
        requests: of each its physical pages on this side, int64 ``[n]``, from position 0 on, and
            the positions ``[start, end)`` that are computed. Pages that left the window may be
            anything; they are not looked at.
    """
    reads, writes = [], []
    for pages, start, end in requests:
        first = memory.first_seen(start)
        slots = token_slots(pages, end, memory.page_size, first)
        reads.append(slots)
        writes.append(slots[start - first :])
    none = torch.empty(0, dtype=torch.int64, device="cpu")
    return Footprint(torch.cat([*reads, none]), torch.cat([*writes, none]))


def footprint_of_slots(
    registry: SlotRegistry, live: Extent, memory: PagedMemory
) -> Footprint | None:
    """What the attention slots of a side say; None if the registry has no such slots."""
    names = memory.slots
    if not all(map(registry.has, names.all)):
        return None
    table = registry.buffer(names.page_table).cpu()
    longest = table.shape[1] * memory.page_size
    reads: list[Tensor] = []
    for i, facts in enumerate(registry.buffer(names.attention_rows)[: live.requests].tolist()):
        context = min(max(facts[2], 0), longest)
        first = min(memory.first_seen(facts[2] - facts[1]), context)
        reads.append(token_slots(table[i].long(), context, memory.page_size, first))
    writes = registry.buffer(names.write_locations)[: live.tokens].cpu().clone()
    return Footprint(torch.cat([*reads, writes.new_empty(0)]), writes)


def token_slots(pages: Tensor, n: int, page_size: int, first: int = 0) -> Tensor:
    """Token slots of positions ``[first, n)`` of a request that holds ``pages``."""
    at = torch.arange(first, n, device=pages.device)
    return pages[at // page_size] * page_size + at % page_size


def compact(indices: list[int], most: int = 4) -> str:
    """Ascending numbers as ranges: ``0-3, 7`` with an ellipsis after ``most`` ranges."""
    runs: list[list[int]] = []
    for i in indices:
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:most]]
    return ", ".join(shown) + (", ..." if len(runs) > most else "")


class Snapshot:
    """A copy of mutable memory: everything owned that is not frozen, slots or all the rest."""

    def __init__(self, owned: Ownership, *, slots: bool = False) -> None:
        self._saved = [
            (whole, whole.clone())
            for whole in (
                _whole(record.storage)
                for record in owned.records()
                if record.storage is not None
                and not record.frozen
                and record.owner.startswith("slot ") is slots
            )
        ]

    def covers(self, tensor: Tensor) -> bool:
        """Whether the memory of ``tensor`` was copied."""
        address = tensor.untyped_storage().data_ptr()
        return any(whole.data_ptr() == address for whole, _ in self._saved)

    def copy_of(self, tensor: Tensor) -> Tensor:
        """What a view of the memory held; KeyError if the memory was not copied."""
        address = tensor.untyped_storage().data_ptr()
        for whole, saved in self._saved:
            if whole.data_ptr() == address:
                copy = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
                offset, stride = int(tensor.storage_offset()), tensor.stride()
                return copy.set_(saved.untyped_storage(), offset, tensor.shape, stride)
        raise KeyError(f"a tensor of shape {list(tensor.shape)} is no mutable owned memory")

    def restore(self) -> None:
        """Put everything back."""
        for whole, saved in self._saved:
            whole.copy_(saved)


def _whole(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
