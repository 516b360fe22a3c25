"""Media rows through the graphs of a tower where one serves, else through the adapter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.contract import InputContract
from firstlight.core.reason import Reason
from firstlight.engine.encoder_graphs.slots import named
from firstlight.errors import MediaError
from firstlight.graphs.encoder import EncoderDecision, EncoderRunner
from firstlight.models.adapter import TOWER_ERRORS, Adapter, Artifact
from firstlight.models.tower import Load, Tower


@dataclass(frozen=True, slots=True)
class _Pack:
    """Artifacts that are encoded together, by their index, and how."""

    indices: tuple[int, ...]
    decision: EncoderDecision


class GraphRows:
    """What the encoder asks for rows, in the place of an adapter.

    Pictures are packed in their order as long as a budget holds them; their rows are what they
    would be alone.
    """

    def __init__(self, adapter: Adapter, tower: Tower, runner: EncoderRunner) -> None:
        self._adapter = adapter
        self._tower = tower
        self.runner = runner

    @property
    def contract(self) -> InputContract:
        """The adapter's."""
        return self._adapter.contract

    @property
    def dtype(self) -> torch.dtype:
        """Of the rows."""
        return self._adapter.dtype

    def media_rows(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """One ``[rows, W]`` tensor per artifact, in order.

        Raises:
            MediaError: as :meth:`Adapter.media_rows`.
        """
        rows: list[Tensor] = [torch.empty(0)] * len(artifacts)
        for pack in self._packs(artifacts):
            chosen = [artifacts[i] for i in pack.indices]
            self.runner.count(pack.decision)
            for i, part in zip(pack.indices, self._encode(chosen, pack.decision), strict=True):
                rows[i] = part
        return rows

    def _packs(self, artifacts: Sequence[Artifact]) -> list[_Pack]:
        packs: list[_Pack] = []
        waiting: list[int] = []
        total = Load(0, 0)

        def close() -> None:
            if waiting:
                decision = self.runner.decide(total.units, total.segments)
                packs.append(_Pack(tuple(waiting), decision))
                waiting.clear()

        for index, artifact in enumerate(artifacts):
            load = self._tower.load(artifact)
            if isinstance(load, str):
                decision = EncoderDecision(None, 0, Reason.NO_BUCKET, load)
                packs.append(_Pack((index,), decision))
                continue
            more = total + load
            full = more.units > self.runner.budgets.largest
            if waiting and (full or more.segments > self.runner.most_segments):
                close()
                more = load
            total = more
            waiting.append(index)
        close()
        return packs

    def _encode(self, artifacts: list[Artifact], decision: EncoderDecision) -> list[Tensor]:
        if decision.budget is None:
            return self._adapter.media_rows(artifacts)
        try:
            values = self._tower.values(artifacts)
            with torch.no_grad():
                output = self.runner.run(named(values), decision.budget)
        except TOWER_ERRORS as error:
            raise MediaError(
                f"{self._adapter.architecture} cannot encode an image as its processor prepared "
                f"it: {error}"
            ) from error
        # The next replay overwrites what this one gave.
        rows = [part.clone() for part in self._tower.split(output, artifacts)]
        self._adapter.check_encoded(artifacts, rows)
        return rows
