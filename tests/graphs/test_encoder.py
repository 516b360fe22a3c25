"""Budgets of an encoder: which graph serves, what stands in its slots, and what it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from firstlight.core.reason import Reason
from firstlight.errors import CaptureError, SlotError
from firstlight.graphs import (
    Arena,
    Axis,
    BucketState,
    BucketTable,
    Dim,
    Extent,
    Meaning,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
    SlotSpec,
    TapeBackend,
)
from firstlight.graphs.encoder import EncoderRunner

Body = Callable[[Mapping[str, Tensor]], Tensor]


def sums(views: Mapping[str, Tensor]) -> Tensor:
    """Each line becomes the sum of its segment's."""
    x, ends = views["x"], views["ends"]
    segment = torch.bucketize(torch.arange(len(x)), ends, right=True)
    return (segment[:, None] == segment[None, :]).float() @ x


def last(buffer: Tensor, live: Extent, padded: Extent) -> None:
    buffer[live.requests : padded.requests] = buffer[live.requests - 1]


def runner(body: Body = sums, budgets: tuple[int, ...] = (4, 8)) -> EncoderRunner:
    registry = SlotRegistry(Extent(budgets[-1], 3), Arena())
    registry.register(SlotSpec("x", (Dim.T, 2), torch.float32, Axis.TOKENS))
    ends = SlotSpec("ends", (Dim.R,), torch.int64, Axis.REQUESTS, meaning=Meaning.INDEX, hook=last)
    registry.register(ends)
    registry.allocate()
    return EncoderRunner(
        registry=registry,
        budgets=BucketTable(budgets),
        backend=TapeBackend(),
        body=body,
        owned=Ownership(),
        cost=PaddingIsFree(),
    )


def values(*lengths: int) -> dict[str, Tensor]:
    x = torch.arange(2.0 * sum(lengths)).view(-1, 2) + 1
    return {"x": x, "ends": torch.tensor(lengths).cumsum(0)}


def wanted(*lengths: int) -> Tensor:
    parts = values(*lengths)["x"].split(lengths)  # type: ignore[no-untyped-call]
    return torch.cat([part.sum(0).expand_as(part) for part in parts])


def test_one_graph_serves_every_split_of_its_budget() -> None:
    r = runner()
    r.capture(8)
    for lengths in ((8,), (3, 5), (5, 3), (1, 1, 6), (2, 3), (7,), (1,)):
        found = r.run(values(*lengths), 8)[: sum(lengths)]
        assert torch.equal(found, wanted(*lengths)), lengths
    assert torch.equal(r.eager(8)[:1], wanted(1))


def test_a_budget_serves_when_it_is_marked_and_not_before() -> None:
    r = runner()
    assert r.decide(3, 1).reason is Reason.NOT_CAPTURED
    r.capture(4)
    r.budgets.mark(4, BucketState.UNPROVEN)
    assert r.decide(3, 1).reason is Reason.NOT_PROVEN
    r.budgets.mark(4, BucketState.READY)
    decision = r.decide(3, 1)
    assert (decision.budget, decision.reason) == (4, Reason.CAPTURED)
    assert decision.detail == "3 units in the graph of 4"
    r.budgets.mark(4, BucketState.QUARANTINED, "it was wrong")
    assert r.decide(3, 1).detail == "the budget of 4 units is quarantined: it was wrong"


@pytest.mark.parametrize(
    ("units", "segments", "reason"),
    [(9, 1, Reason.NO_BUCKET), (4, 4, Reason.TOO_MANY_REQUESTS), (4, 3, Reason.CAPTURED)],
)
def test_what_no_graph_holds_runs_eager(units: int, segments: int, reason: Reason) -> None:
    r = runner()
    for budget in (8, 4):
        r.capture(budget)
        r.budgets.mark(budget, BucketState.READY)
    assert r.decide(units, segments).reason is reason


def test_a_body_that_reads_values_fails_its_budget() -> None:
    def reads(views: Mapping[str, Tensor]) -> Tensor:
        return views["x"] * float(views["ends"].max())

    r = runner(reads)
    with pytest.raises(CaptureError):
        r.capture(4)
    decision = r.decide(4, 1)
    assert decision.reason is Reason.CAPTURE_FAILED
    assert "could not be captured" in decision.detail


def test_a_value_that_does_not_fit_is_refused_before_anything_is_written() -> None:
    r = runner()
    r.capture(4)
    r.fill(values(4), 4)
    with pytest.raises(SlotError):
        r.run({**values(2), "x": torch.zeros(2, 3)}, 4)
    assert torch.equal(r.views(4)["x"], values(4)["x"])


def test_calls_are_counted_by_reason_and_budget() -> None:
    r = runner()
    r.capture(4)
    r.budgets.mark(4, BucketState.READY)
    for units in (1, 4, 9):
        r.count(r.decide(units, 1))
    assert r.counts() == {Reason.CAPTURED: 2, Reason.NO_BUCKET: 1}
    assert r.replays() == {4: 2}
