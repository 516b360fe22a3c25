"""Token ids of a batch's rows: from the host, and from the device where the host has none yet."""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.engine.sequence import Drawn, Sequence
from firstlight.transfer import on_device


class TokenIds:
    """Collects ids in the order of the rows that they are looked up for."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._pending: list[tuple[int, Drawn]] = []

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, sequence: Sequence, start: int, end: int) -> None:
        """The ids at positions ``[start, end)``, of which the last one may be pending."""
        known = min(end, sequence.known)
        self._ids.extend(sequence.ids(start, known))
        if known < end:
            assert sequence.latest is not None
            assert known + 1 == end, "only the last token can be pending"
            self._pending.append((len(self._ids), sequence.latest))
            self._ids.append(0)  # its place

    def on(self, device: torch.device) -> Tensor:
        """int64 ``[n]``, made without a look at what is pending."""
        if not self._pending:
            return on_device(self._ids, torch.int64, device)
        source = self._pending[0][1].ids
        assert all(drawn.ids is source for _, drawn in self._pending), "one step is under way"
        rows = [drawn.row for _, drawn in self._pending]
        drawn = source
        if rows != list(range(source.shape[0])):
            drawn = source.index_select(0, on_device(rows, torch.int64, device))
        if len(rows) == len(self._ids):  # as in most decode steps
            return drawn
        places = [place for place, _ in self._pending]
        ids = on_device(self._ids, torch.int64, device)
        return ids.index_copy_(0, on_device(places, torch.int64, device), drawn)
