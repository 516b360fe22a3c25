"""A graph of pieces under the sanitizer: what lies between them is poisoned, and looked at."""

from __future__ import annotations

import torch
from torch import Tensor

from firstlight.graphs.backends.cuda import CudaBackend, SegmentedGraph
from firstlight.graphs.sanitizer import GuardedScratchArena
from firstlight.graphs.sanitizer.finding import FindingKind
from firstlight.graphs.sanitizer.guard import GUARD
from firstlight.graphs.sanitizer.memory import Snapshot
from firstlight.graphs.sanitizer.pieces import SegmentedReplay, slot_writes, stale_calls
from firstlight.graphs.sanitizer.poison import Poison, far_apart, misplace_
from firstlight.graphs.sanitizer.trial import Trial
from tests.graphs.fake_cuda import FakeApi, FakePiece
from tests.graphs.segmented import Slots, attend_op


def captured(slots: Slots) -> SegmentedGraph:
    """Two layers in three pieces, over scratch memory with a guard band."""
    backend = CudaBackend(FakeApi(), attention=(attend_op(),), scratch=GuardedScratchArena())
    return backend.capture(slots.layers, owned=slots.owned, label="test")


def piece(graph: SegmentedGraph, number: int) -> FakePiece:
    """A captured piece of the device that stands in."""
    found = graph._parts[number]
    assert isinstance(found, FakePiece)
    return found


def test_poison_between_the_pieces_changes_nothing_of_a_healthy_graph() -> None:
    slots = Slots()
    graph = captured(slots)
    slots.refresh(1)
    expected = graph.replay().clone()
    slots.refresh(1)
    assert SegmentedReplay(graph).run(poison=True) is None
    assert torch.equal(graph.output, expected)


def test_rows_that_attention_leaves_alone_are_named_with_the_piece_before_it() -> None:
    slots = Slots()
    graph = captured(slots)
    replay = SegmentedReplay(graph)
    slots.refresh(1, live=3)
    before = Snapshot(slots.owned), Snapshot(slots.owned, slots=True)
    expected = graph.replay()[:3].clone()
    trial = Trial(replay, expected, 3, 6, before, lambda: "")
    assert list(trial.undefined()) == []
    del piece(graph, 0).calls[-1]  # the zeroes of the result of attention
    (fault,) = trial.undefined()
    assert fault.kind is FindingKind.STALE_INTERMEDIATE
    assert fault.op == "test piece 0"


def test_a_write_behind_all_intermediates_is_found() -> None:
    slots = Slots()
    graph = captured(slots)
    block = graph.insides.block
    end = torch.empty(0, dtype=torch.uint8).set_(block)[-4:]

    def too_far() -> None:
        end.zero_()

    piece(graph, 2).calls.append(too_far)
    trouble = SegmentedReplay(graph).run(poison=True)
    assert trouble is not None
    assert trouble.what == "outside"
    assert f"{block.nbytes() - 2}" in trouble.detail
    assert block.nbytes() > GUARD


def test_a_piece_that_raises_is_named() -> None:
    graph = captured(Slots())

    def broken() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    piece(graph, 2).calls[0] = broken
    trouble = SegmentedReplay(graph).run(poison=False)
    assert trouble is not None
    assert (trouble.what, trouble.op) == ("raised", "test piece 2")


def test_what_leaves_a_graph_is_its_output_and_memory_of_others() -> None:
    graph = captured(Slots())
    owners = {graph.plan.owners[index] for index in SegmentedReplay(graph).leaving}
    assert "slot pool" in owners
    assert len(owners) == 2


def test_an_eager_call_that_uses_memory_which_its_owner_has_left_is_named() -> None:
    slots = Slots()
    graph = captured(slots)
    now: dict[str, Tensor] = {"slot pool": slots.pool, "slot rows": slots.rows}
    assert list(stale_calls(graph, now)) == []
    found = list(stale_calls(graph, {**now, "slot pool": slots.pool.clone()}))
    assert {f.subject for f in found} == {"slot pool"}
    assert {f.kind for f in found} == {FindingKind.STALE_ADDRESS}


def test_a_slot_that_the_body_writes_is_named_with_its_part() -> None:
    graph = captured(Slots())
    assert {(f.subject, f.op) for f in slot_writes(graph)} == {
        ("slot pool", "firstlight_test.attend.default")
    }


def test_integers_are_misplaced_to_an_index_that_exists() -> None:
    ids, flags, rows = torch.zeros(3, dtype=torch.int64), torch.zeros(2).bool(), torch.zeros(2)
    for tensor in (ids, flags, rows):
        misplace_(tensor, Poison.FINITE)
    assert ids.tolist() == [1, 1, 1]
    assert flags.tolist() == [False, False]
    assert rows.tolist() == [3e4, 3e4]


def test_values_are_apart_if_they_differ_by_more_than_a_share_of_the_largest() -> None:
    nan = float("nan")
    a, b = torch.tensor([100.0, 1.0, nan, nan]), torch.tensor([100.5, 1.0, nan, 1.0])
    assert far_apart(a, b, 0.01).tolist() == [False, False, False, True]
    assert far_apart(a, b, 0.001).tolist() == [True, False, False, True]
    assert far_apart(a, b, 0.0).tolist() == [True, False, False, True]
