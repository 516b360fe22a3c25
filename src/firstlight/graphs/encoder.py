"""Graphs of an encoder of pictures, by budgets: which one serves some pictures, and its replay.

A budget is a number of units: rows that the encoder gives, or crops. Where the pictures in it begin
and end is a slot's content, so one graph serves every split of a budget, and a batch can never meet
a graph that was made for another split of the same total.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.core.reason import Reason
from firstlight.graphs.backend import CaptureBackend, Graph
from firstlight.graphs.bucket import BucketState, BucketTable
from firstlight.graphs.decision import CostModel, not_ready
from firstlight.graphs.ownership import Ownership
from firstlight.graphs.registry import SlotRegistry
from firstlight.graphs.slot import Axis, Extent

EncoderBody = Callable[[Mapping[str, Tensor]], Tensor]
"""From views of all slots to ``[units, ...]``."""


@dataclass(frozen=True, slots=True)
class EncoderDecision:
    """How some pictures are encoded together.

    Attributes:
        budget: units of the graph that replays, or None for eager.
        units: live ones.
        reason: ``Reason.CAPTURED`` for a replay, else the first rule that refused.
        detail: one sentence with the numbers of that rule.
    """

    budget: int | None
    units: int
    reason: Reason
    detail: str


class EncoderRunner:
    """One encoder: its slots, budgets and graphs.

    Slots on the axis of tokens have a line a unit, those on the axis of requests one a segment.

    Args:
        registry: allocated; its capacity holds the largest budget and the most segments.
        owned: weights that the body may touch; the slots are added to it.
        cost: what padding costs.
    """

    def __init__(
        self,
        *,
        registry: SlotRegistry,
        budgets: BucketTable,
        backend: CaptureBackend,
        body: EncoderBody,
        owned: Ownership,
        cost: CostModel,
    ) -> None:
        self.registry = registry
        self.budgets = budgets
        self._backend = backend
        self._body = body
        self._owned = owned
        self._cost = cost
        self._graphs: dict[int, Graph] = {}
        self._counts: Counter[Reason] = Counter()
        self._replays: Counter[int] = Counter()
        registry.own(owned)

    @property
    def graphs(self) -> Mapping[int, Graph]:
        """The captured graphs by budget."""
        return self._graphs

    @property
    def most_segments(self) -> int:
        """Pictures and frames that a graph takes together."""
        return self.registry.capacity.requests

    def capture(self, budget: int) -> Graph:
        """Capture one budget; it serves nobody until it is marked as ready.

        Raises:
            CaptureError: the body cannot be captured; the budget is marked as failed.
        """
        try:
            self.registry.neutralise(self._padded(budget))
            views = self.views(budget)
            graph = self._backend.capture(
                lambda: self._body(views), owned=self._owned, label=f"encoder {budget}"
            )
        except Exception as error:
            self.budgets.mark(budget, BucketState.FAILED, str(error))
            raise
        self._graphs[budget] = graph
        return graph

    def decide(self, units: int, segments: int) -> EncoderDecision:
        """Which graph serves so many units, or why none does."""
        budget = self.budgets.fitting(units)
        refusal = self._refusal(units, segments, budget)
        if refusal is None:
            detail = f"{units} units in the graph of {budget}"
            return EncoderDecision(budget, units, Reason.CAPTURED, detail)
        return EncoderDecision(None, units, *refusal)

    def _refusal(self, units: int, segments: int, budget: int | None) -> tuple[Reason, str] | None:
        if budget is None:
            largest = self.budgets.largest
            return Reason.NO_BUCKET, f"{units} units, the largest budget has {largest}"
        refusal = not_ready(self.budgets, budget, f"the budget of {budget} units")
        if refusal is not None:
            return refusal
        if segments > self.most_segments:
            most = self.most_segments
            return Reason.TOO_MANY_REQUESTS, f"{segments} segments, the slots hold {most}"
        dear = self._cost.too_dear(units, budget)
        return None if dear is None else (Reason.PADDING_COST, dear)

    def count(self, decision: EncoderDecision) -> None:
        """One more call that ran so."""
        self._counts[decision.reason] += 1
        if decision.budget is not None:
            self._replays[decision.budget] += 1

    def counts(self) -> dict[Reason, int]:
        """Calls by reason, those that there were."""
        return dict(self._counts)

    def replays(self) -> dict[int, int]:
        """Calls by the budget of their graph."""
        return dict(self._replays)

    def run(self, values: Mapping[str, Tensor], budget: int) -> Tensor:
        """Replay the graph of ``budget`` over some pictures.

        Args:
            values: the live lines of every slot.

        Returns:
            ``[budget, ...]``, live units first; overwritten by the next replay of any graph.

        Raises:
            SlotError: a value does not fit its slot; nothing was run.
        """
        self.fill(values, budget)
        return self._graphs[budget].replay()

    def fill(self, values: Mapping[str, Tensor], budget: int) -> None:
        """Write some pictures into the slots, padded for ``budget``."""
        self.registry.fill(values, self._live(values), self._padded(budget))

    def eager(self, budget: int) -> Tensor:
        """The body over what the slots hold, without a graph."""
        with torch.no_grad():
            return self._body(self.views(budget))

    def views(self, budget: int) -> dict[str, Tensor]:
        """The slots as the graph of ``budget`` sees them."""
        padded = self._padded(budget)
        return {name: self.registry.view(name, padded) for name in self.registry.names}

    def _padded(self, budget: int) -> Extent:
        return Extent(budget, self.most_segments)

    def _live(self, values: Mapping[str, Tensor]) -> Extent:
        """By the values themselves: what does not agree is refused by the registry."""
        lines = {self.registry.spec(name).axis: len(value) for name, value in values.items()}
        tokens = next(n for axis, n in lines.items() if axis is Axis.TOKENS)
        others = [n for axis, n in lines.items() if axis is Axis.REQUESTS]
        return Extent(tokens, others[0] if others else 0)
