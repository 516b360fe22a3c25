"""Artifacts that were made before, bounded in bytes and number, and those that are being made.

Everything here is quick and under one lock; nothing is read or computed.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from firstlight.errors import ConfigError
from firstlight.media.artifact import Artifact
from firstlight.media.artifact_maker import Made
from firstlight.media.identity import ArtifactKey

MAX_ENTRIES: Final = 8192
ENTRY_BYTES: Final = 2048
"""What an entry takes beside its tensors' storages: keys, mappings and tensor objects."""


@dataclass(slots=True, eq=False)
class Flight:
    """One artifact that is being made; whoever needs it waits for ``result``.

    Attributes:
        generation: of the cache when it began.
    """

    key: ArtifactKey
    generation: int
    result: Future[Made] = field(default_factory=Future)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the cache says of one key: it is here, somebody makes it, or the caller has to.

    Attributes:
        artifact: the entry, for a hit.
        flight: what to wait for, otherwise.
        owner: whether the caller has to see to it that the flight ends.
    """

    artifact: Artifact | None = None
    flight: Flight | None = None
    owner: bool = False


@dataclass(frozen=True, slots=True)
class ArtifactCacheUsage:
    """What an artifact cache holds, and what it did since it was made.

    Attributes:
        entries, bytes: of all entries; ``bytes`` never exceeds ``max_bytes``.
        in_flight: artifacts that are being made.
        hits, misses, joins: different artifacts of requests that were here, were not, or were
            being made already.
        evictions: entries that made room.
        corrupt: entries that were not what their key says.
        refused: artifacts that were made and not kept: too large, not on the CPU, or begun before
            a flush.
    """

    max_bytes: int
    entries: int
    bytes: int
    in_flight: int
    hits: int
    misses: int
    joins: int
    evictions: int
    corrupt: int
    refused: int


class ArtifactCache:
    """Artifacts by key; the least recently used make room. Threads may share it.

    Args:
        max_bytes: limit of all entries together; 0 keeps nothing.
        max_entries: limit of their number.

    Raises:
        ConfigError: a limit below 0.
    """

    def __init__(self, max_bytes: int, max_entries: int = MAX_ENTRIES) -> None:
        for name, value in (("max_bytes", max_bytes), ("max_entries", max_entries)):
            if value < 0:
                raise ConfigError(
                    f"{name} = {value} of the artifact cache; accepted: an int from 0"
                )
        self.max_bytes = max_bytes
        self._max_entries = max_entries
        self._lock = threading.Lock()
        self._entries: OrderedDict[str, tuple[Artifact, int]] = OrderedDict()
        self._flights: dict[ArtifactKey, Flight] = {}
        self._bytes = self._generation = 0
        self._hits = self._misses = self._joins = 0
        self._evictions = self._corrupt = self._refused = 0

    def get(self, key: ArtifactKey) -> Artifact | None:
        """The entry of a key, counted as a hit; None, not counted, if there is none.

        An entry that is not what the key means is evicted.
        """
        with self._lock:
            return self._get(key)

    def claim(self, keys: Sequence[ArtifactKey]) -> list[Claim]:
        """Hit, join or own each of several keys at one moment, so that nothing is made twice."""
        with self._lock:
            return [self._claim(key) for key in keys]

    def finish(self, flight: Flight, made: Made | BaseException) -> None:
        """End a flight: keep the artifact if it may be kept, and tell all who wait.

        A failure reaches them all and is not kept, so that the next request tries again.
        """
        with self._lock:
            if self._flights.get(flight.key) is flight:
                del self._flights[flight.key]
            if isinstance(made, Made):
                self._put(flight, made.artifact)
        if isinstance(made, Made):
            flight.result.set_result(made)
        else:
            flight.result.set_exception(made)

    def flush(self) -> None:
        """Drop all entries; what is being made serves those who wait and is not kept.

        For new weights, another processor, and shutdown.
        """
        with self._lock:
            self._generation += 1
            self._entries.clear()
            self._flights.clear()
            self._bytes = 0

    def usage(self) -> ArtifactCacheUsage:
        """What it holds, and its counts."""
        with self._lock:
            return ArtifactCacheUsage(
                max_bytes=self.max_bytes,
                entries=len(self._entries),
                bytes=self._bytes,
                in_flight=len(self._flights),
                hits=self._hits,
                misses=self._misses,
                joins=self._joins,
                evictions=self._evictions,
                corrupt=self._corrupt,
                refused=self._refused,
            )

    def _get(self, key: ArtifactKey) -> Artifact | None:
        entry = self._entries.get(key.name)
        if entry is None:
            return None
        if not key.matches(entry[0]):
            self._drop(key.name)
            self._corrupt += 1
            return None
        self._entries.move_to_end(key.name)
        self._hits += 1
        return entry[0]

    def _claim(self, key: ArtifactKey) -> Claim:
        artifact = self._get(key)
        if artifact is not None:
            return Claim(artifact)
        flying = self._flights.get(key)
        if flying is not None:
            self._joins += 1
            return Claim(flight=flying)
        self._misses += 1
        flight = self._flights[key] = Flight(key, self._generation)
        return Claim(flight=flight, owner=True)

    def _put(self, flight: Flight, artifact: Artifact) -> None:
        size = cached_bytes(artifact)
        if (
            size is None
            or size > self.max_bytes
            or not self._max_entries
            or flight.generation != self._generation
        ):
            self._refused += 1
            return
        self._drop(flight.key.name)
        while self._bytes + size > self.max_bytes or len(self._entries) >= self._max_entries:
            self._drop(next(iter(self._entries)))
            self._evictions += 1
        self._entries[flight.key.name] = (artifact, size)
        self._bytes += size

    def _drop(self, name: str) -> None:
        entry = self._entries.pop(name, None)
        self._bytes -= entry[1] if entry is not None else 0


def cached_bytes(artifact: Artifact) -> int | None:
    """Bytes that keeping an artifact takes; None if they cannot be bounded by host memory.

    Whole storages count, each once: a view keeps all of what it is a view of.
    """
    storages: dict[int, int] = {}
    for tensor in artifact.tensors.values():
        if tensor.device.type != "cpu":
            return None
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values()) + ENTRY_BYTES
