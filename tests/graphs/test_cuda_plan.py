"""Where bodies are cut around attention, what crosses the cuts, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from firstlight.errors import CaptureError, DynamicShapeError, HostReadError, UnownedTensorError
from firstlight.graphs.backends.cuda import Define, SegmentedGraph
from tests.graphs.segmented import Slots, attend_all_op


def kinds(graph: SegmentedGraph) -> list[str]:
    """``graph`` or ``eager`` of each piece."""
    return [piece.kind for piece in graph.pieces]


def check(slots: Slots, fn: Callable[[], Tensor], *, whole: bool = False) -> SegmentedGraph:
    """Capture ``fn`` and compare its replays with eager runs, live rows of several batches."""
    graph = slots.capture(fn, whole=whole)
    for seed, live in ((1, 6), (2, 3), (3, 5)):
        slots.refresh(seed, live)
        found = graph.replay().clone()
        stored = slots.pool.clone()
        slots.refresh(seed, live)
        expected = fn()
        assert torch.equal(found[:live], expected[:live])
        assert torch.equal(stored, slots.pool)
    return graph


def test_a_body_is_cut_at_each_attention() -> None:
    slots = Slots()
    graph = check(slots, slots.layers)
    assert kinds(graph) == ["graph", "eager", "graph", "eager", "graph"]


def test_a_body_without_attention_is_one_piece() -> None:
    slots = Slots()
    assert kinds(check(slots, lambda: (slots.x @ slots.weight).relu())) == ["graph"]


def test_attention_may_come_first() -> None:
    slots = Slots()
    graph = check(slots, lambda: slots.attend(slots.x) @ slots.weight)
    # Even then a piece comes before it: the one that defines its result.
    assert kinds(graph) == ["graph", "eager", "graph"]


def test_attention_may_come_last() -> None:
    slots = Slots()
    graph = check(slots, lambda: slots.attend(slots.x @ slots.weight))
    assert kinds(graph) == ["graph", "eager"]


def test_two_attentions_in_a_row_each_get_a_defined_result() -> None:
    slots = Slots()
    graph = check(slots, lambda: slots.attend(slots.attend(slots.x)) + 1)
    assert kinds(graph) == ["graph", "eager", "graph", "eager", "graph"]


def test_a_whole_capture_is_one_piece_that_holds_attention() -> None:
    slots = Slots()
    graph = check(slots, lambda: slots.layers(attend=attend_all_op()), whole=True)
    assert kinds(graph) == ["graph"]
    assert str(attend_all_op()) in [
        str(getattr(i, "func", "")) for i in graph.plan.segments[0].items
    ]


def test_rows_that_attention_leaves_alone_are_zero_at_every_replay() -> None:
    slots = Slots()
    graph = slots.capture(lambda: slots.attend(slots.x * 1.0) + 0.0)
    slots.refresh(1, live=6)
    graph.replay()
    slots.refresh(2, live=2)
    assert torch.equal(graph.replay()[2:], torch.zeros(4, 4))


def test_rows_are_defined_in_a_whole_capture_too() -> None:
    slots = Slots()
    graph = slots.capture(lambda: slots.layers(1, attend_all_op()), whole=True)
    assert any(isinstance(item, Define) for item in graph.plan.segments[0].items)


def test_the_plan_says_what_each_part_reads_and_writes() -> None:
    slots = Slots()
    plan = slots.capture(lambda: slots.layers(1)).plan
    first, attention, last = plan.segments

    def owners(indices: tuple[int, ...]) -> set[str]:
        return {plan.owners[i].partition(" at ")[0] for i in indices}

    assert owners(first.reads) == {"slot x", "weight w"}
    assert "slot pool" in owners(attention.writes)
    assert {"slot pool", "slot rows"} <= owners(attention.reads)
    assert "weight w" in owners(last.reads)
    assert "slot pool" not in owners(first.writes) | owners(last.writes)


def test_what_crosses_a_cut_is_a_bridge_and_what_lives_in_one_piece_is_not() -> None:
    slots = Slots()
    plan = slots.capture(lambda: slots.layers(1)).plan
    # The residual stream, the queries, attention's result, and the output.
    assert len(plan.bridges) == 3
    assert {(b.first, b.last) for b in plan.bridges} == {(0, 2), (0, 1)}


def test_bridges_that_live_together_share_no_byte() -> None:
    slots = Slots()
    bridges = slots.capture(lambda: slots.layers(4)).plan.bridges
    for i, one in enumerate(bridges):
        for other in bridges[i + 1 :]:
            together = one.first < other.last and other.first < one.last
            apart = one.offset + one.n_bytes <= other.offset
            assert not together or apart or other.offset + other.n_bytes <= one.offset


def test_every_bridge_lies_in_the_arena_of_the_plan() -> None:
    slots = Slots()
    graph = slots.capture(lambda: slots.layers(3))
    for bridge in graph.plan.bridges:
        assert bridge.offset + bridge.n_bytes <= graph.taken.scratch


def test_a_plan_is_printed_part_by_part() -> None:
    slots = Slots()
    text = slots.capture(lambda: slots.layers(1)).dump()
    assert "1 eager firstlight_test.attend.default: 1 ops; reads" in text
    assert "bridge" in text


LOOSE = torch.ones(4)

REFUSED: dict[str, tuple[type[CaptureError], Callable[[Slots], Tensor]]] = {
    "a host read": (HostReadError, lambda s: s.x * s.x.sum().item()),
    "a branch": (HostReadError, lambda s: s.x if (s.x > 0).all() else -s.x),
    "a shape from data": (DynamicShapeError, lambda s: s.x[s.x > 0]),
    "memory of nobody": (UnownedTensorError, lambda s: s.x + LOOSE),
    "random numbers": (CaptureError, lambda s: s.x + torch.rand(6, 4)),
    "memory that nothing wrote": (CaptureError, lambda s: s.x + torch.empty(6, 4)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_graph_holds_is_refused_with_operation_and_line(what: str) -> None:
    slots = Slots()
    kind, fn = REFUSED[what]
    with pytest.raises(kind) as caught:
        slots.capture(lambda: fn(slots))
    assert caught.value.op.startswith(("aten.", "Tensor."))
    assert caught.value.where.startswith(__file__)
