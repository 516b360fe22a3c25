"""State slots for recurrent layers: who owns which, and which states a prefix hit may resume from.

A recurrent layer (linear attention, Mamba, short convolution) keeps no keys and values: one state
of constant size per request is read and overwritten at every step. A *state slot* holds it, the
same slot number in every recurrent layer. Slot 0 is the sink, like page 0 of the KV memory.

A state cannot be cut back. A prefix hit resumes a request only where a *checkpoint* was taken: a
copy of the state behind a full page, written by the step that passed there (the step is told where
to by its tracking slots, :func:`tracking_values`), and found by the id of that page in the prefix
tree. For the same reason a step that failed half-way leaves nothing to repeat it from: its requests
are released and start again.

This module keeps the books; pools of tensors, and models that need them, are not built yet.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NewType, Protocol

import numpy as np

from firstlight.errors import ConfigError
from firstlight.memory.ids import VirtualPage
from firstlight.memory.prefix_key import PrefixKey

StateSlot = NewType("StateSlot", int)
STATE_SINK = StateSlot(0)


class StateStore(Protocol):
    """The states themselves, all recurrent layers at once."""

    def copy(self, source: StateSlot, target: StateSlot) -> None:
        """Make ``target`` hold what ``source`` holds."""
        ...

    def clear(self, slot: StateSlot) -> None:
        """Give ``slot`` the state of a request without tokens."""
        ...


@dataclass(frozen=True, slots=True)
class Track:
    """A checkpoint that a step writes: the state after ``position`` tokens, into ``slot``."""

    slot: StateSlot
    position: int


@dataclass(slots=True, eq=False)
class StateHolding:
    """One running request's states. Only :class:`StateMemory` changes it.

    Attributes:
        slot: its running state.
        resumed: tokens that the state holds at the start.
        source: the checkpoint to copy ``slot`` from before the first chunk, until
            :meth:`StateMemory.resume`; None: the slot is to be cleared, or was copied.
        prompt_length: tokens of its prompt.
        planned: the checkpoint that the step being run writes, if any.
        written: checkpoints that steps have written and no page stands for yet, by position.
        released: whether everything was given back.
    """

    slot: StateSlot
    resumed: int
    source: VirtualPage | None
    prompt_length: int
    planned: Track | None = None
    written: list[Track] = field(default_factory=list)
    released: bool = False


@dataclass(slots=True)
class _Checkpoint:
    slot: StateSlot
    users: int = 0  # requests that are to copy it


@dataclass(frozen=True, slots=True)
class StateUsage:
    """Slots without the sink: ``free + cached + held`` is all of them.

    Attributes:
        free: owned by nobody.
        cached: checkpoints that can be evicted.
        held: running states, checkpoints that no page stands for yet, and those to be copied.
        resumed: requests that began at a checkpoint.
        skipped: checkpoints that were due and not taken, for want of a slot.
        evictions: checkpoints given up for other states.
    """

    free: int
    cached: int
    held: int
    resumed: int
    skipped: int
    evictions: int


class StateMemory:
    """State slots for requests that come and go.

    Args:
        n_slots: slots of the pools, the sink included.
        page_size: tokens of a KV page.
        interval: tokens between two possible checkpoints of one request, a multiple of the page
            size.

    Raises:
        ConfigError: no slot beside the sink, or an interval that is no multiple of the page size.
    """

    def __init__(self, n_slots: int, page_size: int, *, interval: int) -> None:
        if n_slots < 2:
            raise ConfigError(f"state_slots = {n_slots}; accepted: at least 2 (slot 0 is the sink)")
        if interval < 1 or interval % page_size:
            raise ConfigError(
                f"state_interval = {interval} is no multiple of page_size = {page_size}"
            )
        self.n_slots = n_slots
        self.page_size = page_size
        self.interval = interval
        self._free = [StateSlot(slot) for slot in range(n_slots - 1, 0, -1)]
        self._checkpoints: dict[VirtualPage, _Checkpoint] = {}
        self._idle: OrderedDict[VirtualPage, None] = OrderedDict()  # the next to be evicted first
        self._resumed = self._skipped = self._evictions = 0

    @property
    def n_free(self) -> int:
        """Slots that are free or can be evicted."""
        return len(self._free) + len(self._idle)

    def resumable(self, pages: Sequence[VirtualPage]) -> int:
        """Tokens of the longest prefix along the cached ``pages`` that has a checkpoint.

        A prefix hit of a model with recurrent layers is cut to this number: keys and values alone
        do not continue a request.
        """
        for n in range(len(pages), 0, -1):
            if pages[n - 1] in self._checkpoints:
                return n * self.page_size
        return 0

    def start(self, pages: Sequence[VirtualPage], prompt_length: int) -> StateHolding | None:
        """A slot for a request that begins behind the cached ``pages``; none: at its beginning.

        :meth:`resume` must fill the slot before the first chunk. Until then the checkpoint is
        referred to and stays.

        Returns:
            None if every slot is held; then nothing is taken.

        Raises:
            ValueError: there is no checkpoint behind the last of ``pages``.
        """
        source = pages[-1] if pages else None
        if source is not None:
            if source not in self._checkpoints:
                raise ValueError(f"there is no state behind page {source}; ask resumable() first")
            # Before a slot is looked for, so that it is not this one that is evicted.
            self._refer(source)
        slot = self._take()
        if slot is None:
            if source is not None:
                self._unrefer(source)
            return None
        self._resumed += source is not None
        return StateHolding(slot, len(pages) * self.page_size, source, prompt_length)

    def resume(self, holding: StateHolding, store: StateStore) -> None:
        """Fill the request's slot: from its checkpoint, or cleared of whoever had it before."""
        if holding.source is None:
            store.clear(holding.slot)
            return
        store.copy(self._checkpoints[holding.source].slot, holding.slot)
        self._unrefer(holding.source)
        holding.source = None

    def plan(self, holding: StateHolding, key: PrefixKey, start: int, end: int) -> Track | None:
        """The checkpoint that a step over positions ``[start, end)`` is to write, if any.

        The last one that is possible: at a multiple of the interval, inside no media item. Of the
        answer only the newest is kept; those of the prompt are kept until they are published.
        A checkpoint is a convenience: without a slot for it there is none.

        Raises:
            ValueError: the checkpoint of the step before was neither kept nor dropped.
        """
        if holding.planned is not None:
            raise ValueError("the checkpoint of the last step was neither kept nor dropped")
        position = self._boundary(key, end)
        if position <= start:
            return None
        newest = holding.written[-1] if holding.written else None
        if newest is not None and newest.position > holding.prompt_length:
            holding.written.pop()
            slot: StateSlot | None = newest.slot
        else:
            slot = self._take()
        if slot is None:
            self._skipped += 1
            return None
        holding.planned = Track(slot, position)
        return holding.planned

    def keep(self, holding: StateHolding) -> None:
        """The step is computed: its checkpoint is written, and waits for its page."""
        if holding.planned is not None:
            holding.written.append(holding.planned)
            holding.planned = None

    def drop(self, holding: StateHolding) -> None:
        """The step was not computed, and its checkpoint holds nothing."""
        if holding.planned is not None:
            self._free.append(holding.planned.slot)
            holding.planned = None

    def publish(self, holding: StateHolding, path: Sequence[VirtualPage]) -> None:
        """Let others resume from what was written along ``path``.

        Args:
            path: the cached pages of this request's prefix, in order: the prefix tree's own ids,
                which are not the request's where equal pages were cached before.
        """
        waiting = []
        for track in holding.written:
            n = track.position // self.page_size
            if n > len(path):
                waiting.append(track)
            elif path[n - 1] in self._checkpoints:
                self._free.append(track.slot)
            else:
                self._checkpoints[path[n - 1]] = _Checkpoint(track.slot)
                self._idle[path[n - 1]] = None
        holding.written = waiting

    def forget(self, page: VirtualPage) -> None:
        """The prefix tree has evicted ``page``: nobody can find the state behind it any more.

        Raises:
            ValueError: a request is to resume there; it holds the page, so it cannot be evicted.
        """
        checkpoint = self._checkpoints.get(page)
        if checkpoint is None:
            return
        if checkpoint.users:
            raise ValueError(f"{checkpoint.users} requests are to resume behind page {page}")
        self._discard(page)

    def release(self, holding: StateHolding) -> None:
        """Give everything back that is not published; a second call does nothing."""
        if holding.released:
            return
        holding.released = True
        self.drop(holding)
        self._free += [track.slot for track in holding.written]
        holding.written = []
        self._free.append(holding.slot)
        if holding.source is not None:
            self._unrefer(holding.source)
            holding.source = None

    def usage(self) -> StateUsage:
        """The state and the counters now."""
        free, cached = len(self._free), len(self._idle)
        held = self.n_slots - 1 - free - cached
        return StateUsage(free, cached, held, self._resumed, self._skipped, self._evictions)

    def _boundary(self, key: PrefixKey, end: int) -> int:
        """The last possible checkpoint at or before ``end``, in tokens."""
        position = end // self.interval * self.interval
        while key.ends_inside(position):
            position = key.last_border(position) // self.interval * self.interval
        return position

    def _take(self) -> StateSlot | None:
        """A slot: a free one, else that of the checkpoint that was not used for longest."""
        if not self._free:
            if not self._idle:
                return None
            self._discard(next(iter(self._idle)))
            self._evictions += 1
        return self._free.pop()

    def _discard(self, page: VirtualPage) -> None:
        del self._idle[page]
        self._free.append(self._checkpoints.pop(page).slot)

    def _refer(self, page: VirtualPage) -> None:
        self._checkpoints[page].users += 1
        self._idle.pop(page, None)

    def _unrefer(self, page: VirtualPage) -> None:
        checkpoint = self._checkpoints[page]
        checkpoint.users -= 1
        if not checkpoint.users:
            self._idle[page] = None  # used last of all


def tracking_values(
    holdings: Sequence[StateHolding],
) -> dict[str, np.ndarray]:
    """A step's values of the state slots, one row per request of the batch, in its order.

    ``state_indices`` int64 [B]: running states. ``track_indices`` int64 [B], ``track_mask`` bool
    [B], ``track_seqlens`` int32 [B]: where a row's checkpoint goes, whether it has one, and after
    how many tokens of the request it is taken; sink, False and 0 for a row without.
    """
    tracks = [holding.planned for holding in holdings]
    return {
        "state_indices": np.array([h.slot for h in holdings], dtype=np.int64),
        "track_indices": np.array([t.slot if t else STATE_SINK for t in tracks], dtype=np.int64),
        "track_mask": np.array([t is not None for t in tracks], dtype=np.bool_),
        "track_seqlens": np.array([t.position if t else 0 for t in tracks], dtype=np.int32),
    }


@contextmanager
def cleared_after(store: StateStore, slots: Sequence[StateSlot] = (STATE_SINK,)) -> Iterator[None]:
    """Warm-up and capture run dummies over ``slots``; what they leave there is cleared.

    A dummy's rows point at the sink, which padding rows of every later batch read: without this
    they would read a state that has gone through as many steps as there were captures.
    """
    try:
        yield
    finally:
        for slot in slots:
            store.clear(slot)
