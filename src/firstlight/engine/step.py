"""One step: rows into slots, the body by graph or eager, logits, tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from firstlight.attention import RowsInMemory
from firstlight.core.plan import BatchPlan, Chunk
from firstlight.core.reason import Decision, Phase
from firstlight.engine.merge import merge
from firstlight.engine.placement import Placement
from firstlight.engine.sequence import Sequence
from firstlight.engine.token_ids import TokenIds
from firstlight.graphs import Extent, GraphRunner
from firstlight.models.adapter import Adapter
from firstlight.sampling import Draws, Sampled, Sampler
from firstlight.transfer import on_device


@dataclass(frozen=True, slots=True, eq=False)
class StepResult:
    """A batch that was issued; on a GPU it may still run.

    Attributes:
        decision: how it runs.
        requests: those whose last position it computes, and who so get a token.
        draws: these tokens.
    """

    decision: Decision
    requests: tuple[Sequence, ...]
    draws: Draws

    def wait(self) -> tuple[tuple[Sequence, Sampled], ...]:
        """Each request with its token, once the batch is computed."""
        return tuple(zip(self.requests, self.draws.wait(), strict=True))


class Step:
    """Runs batches; collaborators are given, nothing is built here.

    Args:
        placement: where the requests' pages are.
        one_row_per_request: whether the body returns the last row of each request, not all rows.
    """

    def __init__(
        self,
        adapter: Adapter,
        runners: Mapping[Phase, GraphRunner],
        sampler: Sampler,
        *,
        placement: Placement,
        one_row_per_request: bool,
    ) -> None:
        self._adapter = adapter
        self._runners = runners
        self._sampler = sampler
        self._placement = placement
        self._one_row_per_request = one_row_per_request

    @torch.inference_mode()
    def run(self, plan: BatchPlan[Sequence]) -> StepResult:
        """Issue the plan's chunks, and the draw where a request's tokens are all in memory then.

        Nothing of the device is waited for.
        """
        runner = self._runners[plan.phase]
        live = Extent(tokens=plan.tokens, requests=len(plan.chunks))
        decision = runner.decide(live, plan.max_context)
        runner.fill(self._values(plan.chunks), live, decision)
        contract = self._adapter.contract
        merge(runner.embeds(live.tokens), plan.chunks, self._adapter, contract)
        hidden = runner.run(decision)
        return StepResult(decision, *self._sample(plan.chunks, hidden))

    def _values(self, chunks: tuple[Chunk[Sequence], ...]) -> dict[str, Tensor]:
        values = self._placement.values([rows_in_memory(chunk) for chunk in chunks])
        columns = [c.request.position_columns(c.start, c.end) for c in chunks]
        values["positions"] = torch.from_numpy(np.concatenate(columns, axis=1))
        if self._adapter.contract.planes:
            ids = TokenIds()
            for c in chunks:
                ids.add(c.request, c.start, c.end)
            values.update(self._adapter.planes(ids.on(self._adapter.device)))
        return values

    def _sample(
        self, chunks: tuple[Chunk[Sequence], ...], hidden: Tensor
    ) -> tuple[tuple[Sequence, ...], Draws]:
        """Only rows whose token is wanted go through the LM head."""
        ends = np.cumsum([len(chunk) for chunk in chunks]) - 1
        rows = range(len(chunks)) if self._one_row_per_request else ends.tolist()
        wanted = [
            (chunk.request, row)
            for chunk, row in zip(chunks, rows, strict=True)
            if chunk.end == chunk.request.length
        ]
        if not wanted:
            return (), Draws.none(hidden.device)
        for sequence, _ in wanted:
            sequence.sampling.mark()
        picked = [row for _, row in wanted]
        if len(picked) < hidden.shape[0]:
            hidden = hidden.index_select(0, on_device(picked, torch.int64, hidden.device))
        draws = self._sampler.launch(
            self._adapter.logits(hidden),
            [sequence.sampling for sequence, _ in wanted],
        )
        return tuple(sequence for sequence, _ in wanted), draws


def rows_in_memory(chunk: Chunk[Sequence]) -> RowsInMemory:
    """A chunk as attention sees it: its pages, its positions, and its blocks."""
    request = chunk.request
    assert request.holding is not None, "a request that runs holds pages"
    is_prompt = chunk.end <= request.prompt_length
    return RowsInMemory(request.holding.pages, chunk.start, chunk.end, request.blocks, is_prompt)
