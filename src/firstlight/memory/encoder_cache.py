"""Rows of media that were encoded before, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor

from firstlight.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EncoderCacheUsage:
    """What an encoder cache holds, and what it did since it was made.

    Attributes:
        entries, bytes: of all entries; ``bytes`` never exceeds ``capacity_bytes``.
        pinned: entries that a running request needs.
        hits, misses: answers of :meth:`EncoderCache.get`.
        evictions: entries that made room, or that had other rows than were asked for.
        refused: rows that :meth:`EncoderCache.put` did not take.
    """

    capacity_bytes: int
    entries: int
    bytes: int
    pinned: int
    hits: int
    misses: int
    evictions: int
    refused: int


@dataclass(slots=True)
class _Entry:
    rows: Tensor
    pins: int = 0
    stale: bool = False  # flushed while pinned: nobody finds it, and the last unpin drops it


class EncoderCache:
    """Encoder rows ``[n, W]`` by key; the least recently used unpinned entries make room.

    Rows are owned: a tensor that is put is taken over, and a view of a larger one is copied, so
    that no batch is kept alive by one of its pictures. For one thread at a time.

    Args:
        capacity_bytes: limit of all entries together; 0 keeps nothing.

    Raises:
        ConfigError: a negative capacity.
    """

    def __init__(self, capacity_bytes: int) -> None:
        if capacity_bytes < 0:
            raise ConfigError(f"encoder_cache_bytes = {capacity_bytes}; accepted: an int from 0")
        self.capacity_bytes = capacity_bytes
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # the least recently used first
        self._bytes = 0
        self._pinned_bytes = 0
        self._hits = self._misses = self._evictions = self._refused = 0

    def has(self, key: str, rows: int, width: int) -> bool:
        """Whether :meth:`get` would hit; counts nothing and changes no order."""
        entry = self._entries.get(key)
        return entry is not None and not entry.stale and entry.rows.shape == (rows, width)

    def get(self, key: str, rows: int, width: int) -> Tensor | None:
        """The entry's own rows ``[rows, width]``, to be read and not written; None for a miss.

        An entry of another shape is not what its key says: it is evicted, unless it is pinned.
        """
        if self.has(key, rows, width):
            self._hits += 1
            self._entries.move_to_end(key)
            return self._entries[key].rows
        self._misses += 1
        entry = self._entries.get(key)
        if entry is not None and not entry.pins:
            self._drop(key)
            self._evictions += 1
        return None

    def put(self, key: str, rows: Tensor) -> bool:
        """Keep rows ``[n, W]``; False, with nothing evicted, where they cannot fit.

        They cannot if they and the pinned entries together exceed the capacity, or if the key is
        pinned with rows of another shape. A key that is there with this shape keeps its rows.
        """
        entry = self._entries.get(key)
        if entry is not None and not entry.stale and entry.rows.shape == rows.shape:
            self._entries.move_to_end(key)
            return True
        if (entry is not None and entry.pins) or (
            self._pinned_bytes + rows.nbytes > self.capacity_bytes
        ):
            self._refused += 1
            return False
        if entry is not None:
            self._drop(key)
            self._evictions += 1
        self._make_room(rows.nbytes)
        self._entries[key] = _Entry(owned(rows))
        self._bytes += rows.nbytes
        return True

    def pin(self, key: str) -> None:
        """Keep an entry until it was unpinned as often as it was pinned.

        Raises:
            KeyError: there is no such entry.
        """
        entry = self._entries[key]
        if not entry.pins:
            self._pinned_bytes += entry.rows.nbytes
        entry.pins += 1

    def unpin(self, key: str) -> None:
        """Undo one :meth:`pin`.

        Raises:
            ValueError: the key is not pinned; a count is never negative.
        """
        entry = self._entries.get(key)
        if entry is None or not entry.pins:
            raise ValueError(f"the encoder cache's entry {key!r} is not pinned")
        entry.pins -= 1
        if not entry.pins:
            self._pinned_bytes -= entry.rows.nbytes
            if entry.stale:
                self._drop(key)

    def flush(self) -> None:
        """Forget all entries; those that are pinned are found no more and go with the last pin."""
        for key in list(self._entries):
            entry = self._entries[key]
            if entry.pins:
                entry.stale = True
            else:
                self._drop(key)

    def reset(self) -> None:
        """Forget everything, pinned entries too: for when nobody knows any more who pinned what."""
        self._entries.clear()
        self._bytes = self._pinned_bytes = 0

    def usage(self) -> EncoderCacheUsage:
        """The state and the counters now."""
        return EncoderCacheUsage(
            capacity_bytes=self.capacity_bytes,
            entries=len(self._entries),
            bytes=self._bytes,
            pinned=sum(entry.pins > 0 for entry in self._entries.values()),
            hits=self._hits,
            misses=self._misses,
            evictions=self._evictions,
            refused=self._refused,
        )

    def _make_room(self, nbytes: int) -> None:
        """Evict the least recently used unpinned entries; the caller knows that they suffice."""
        excess = self._bytes + nbytes - self.capacity_bytes
        for key in list(self._entries) if excess > 0 else ():
            if excess <= 0:
                break
            if not self._entries[key].pins:
                excess -= self._entries[key].rows.nbytes
                self._drop(key)
                self._evictions += 1

    def _drop(self, key: str) -> None:
        self._bytes -= self._entries.pop(key).rows.nbytes


def owned(rows: Tensor) -> Tensor:
    """The same rows in memory of their own: unchanged if they fill their storage, else a copy."""
    alone = rows.is_contiguous() and rows.untyped_storage().nbytes() == rows.nbytes
    return rows.detach() if alone else rows.detach().clone()
