"""How pieces are captured: order, streams, what is counted, and what a failure leaves."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import permutations

import pytest
import torch

from firstlight.core.reason import Phase
from firstlight.errors import CaptureError, CaptureMemoryError
from firstlight.graphs.accounting import Kind, graph_bytes, graph_seconds
from firstlight.graphs.backends.cuda import CudaBackend, SegmentedGraph
from tests.graphs.decoder import Rig
from tests.graphs.fake_cuda import MIB, FakeApi
from tests.graphs.segmented import Slots, attend_op, calls

SOFTMAX = torch.ops.aten._softmax.default


def cut_at_softmax(api: FakeApi | None = None) -> CudaBackend:
    """Pieces around each layer's softmax: a real decoder, cut where data of all rows crosses."""
    return CudaBackend(api or FakeApi(), attention=(SOFTMAX,))


def no_memory(at: int) -> Callable[[int], None]:
    """Fails the capture of that number, as torch's allocator does."""

    def fail(number: int) -> None:
        if number == at:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore.")

    return fail


def test_warm_ups_run_in_order_on_the_capture_stream_before_anything_is_captured() -> None:
    api = FakeApi()
    s = Slots()
    s.capture(s.layers, api)
    begin = api.log.index("begin")
    assert api.log[:begin] == ["stream", "synchronise", "synchronise"]
    assert api.log[begin:] == ["begin", "end"] * 3 + ["default stream", "synchronise", "release"]


def test_attention_is_no_part_of_a_piece() -> None:
    slots, api = Slots(), FakeApi()
    graph = slots.capture(slots.layers, api)
    calls.clear()
    graph.replay()
    assert len(calls) == 2
    assert [piece.replays for piece in api.pieces] == [1, 1, 1]


def test_attention_reads_the_same_addresses_at_every_replay() -> None:
    slots = Slots()
    graph = slots.capture(slots.layers)
    calls.clear()
    graph.replay()
    graph.replay()
    first, second, third, fourth = (q.data_ptr() for q in calls)
    assert (first, second) == (third, fourth)


def test_the_collector_of_garbage_rests_during_a_capture_and_goes_on_after_it() -> None:
    seen: list[bool] = []
    slots = Slots()
    slots.capture(slots.layers, FakeApi(fail=lambda n: seen.append(gc.isenabled())))
    assert seen == [False] * 3
    assert gc.isenabled()


def test_replays_equal_eager_bit_for_bit_in_every_order_of_buckets() -> None:
    rig = Rig(backend=cut_at_softmax())
    report = rig.runner.capture_all()
    assert not report.failures
    assert len(rig.runner.graphs[16].pieces) == 5
    for order in permutations((4, 8, 16)):
        for n in order:
            rows = rig.rows(n, n)
            rig.decoder.clear()
            replayed = rig.fill(rows).clone()
            rig.decoder.clear()
            assert torch.equal(replayed, rig.fill(rows, eager=True))


def test_memory_that_comes_and_goes_between_replays_changes_nothing() -> None:
    rig = Rig(backend=cut_at_softmax())
    rig.runner.capture_all()
    expected = {}
    for n in (4, 16, 8):
        rig.decoder.clear()
        expected[n] = rig.fill(rig.rows(n, n), eager=True).clone()
    gc.collect()
    for n in (4, 16, 4, 8, 16):
        churn = [torch.full((size,), float("nan")) for size in range(1, 4096, 61)]
        del churn[::2]
        rig.decoder.clear()
        assert torch.equal(rig.fill(rig.rows(n, n)), expected[n])


def test_nothing_that_an_earlier_replay_left_in_the_arena_is_read() -> None:
    backend = cut_at_softmax()
    rig = Rig(backend=backend)
    rig.runner.capture_all()
    for n in (4, 16, 4, 8, 16):
        rig.decoder.clear()
        expected = rig.fill(rig.rows(n, n), eager=True).clone()
        rig.decoder.clear()
        for block in backend.scratch._blocks:
            torch.empty(0, dtype=torch.uint8).set_(block).fill_(0xFF)
        assert torch.equal(rig.fill(rig.rows(n, n)), expected)


def test_buckets_are_captured_largest_first_into_one_arena() -> None:
    backend = cut_at_softmax()
    rig = Rig(backend=backend)
    report = rig.runner.capture_all()
    assert [b.bucket for b in report.buckets] == [16, 8, 4]
    graphs = [rig.runner.graphs[bucket] for bucket in (16, 8, 4)]
    scratch = [graph.taken.scratch for graph in graphs if isinstance(graph, SegmentedGraph)]
    assert scratch[0] == backend.scratch.bytes > 0
    assert scratch[1:] == [0, 0]


def test_what_a_plan_takes_beforehand_belongs_to_the_first_graph() -> None:
    slots, backend = Slots(), CudaBackend(FakeApi(), attention=(attend_op(),))
    plan = backend.plan(slots.layers, owned=slots.owned, label="rehearsal")
    graph = backend.capture(slots.layers, owned=slots.owned, label="test")
    assert graph.taken.scratch == backend.scratch.bytes > 0
    assert [s.kind for s in plan.segments] == [s.kind for s in graph.plan.segments]
    again = backend.capture(slots.layers, owned=slots.owned, label="test")
    assert again.taken.scratch == 0


def test_bytes_and_seconds_of_a_bucket_are_told_by_what_they_are_for() -> None:
    rig = Rig(backend=cut_at_softmax(FakeApi(grows=3 * MIB, driver=MIB)))
    rig.runner.capture_all()
    graph = rig.runner.graphs[16]
    entries = graph_bytes(graph, Phase.PREFILL, 16)
    pieces = sum(p.kind == "graph" for p in graph.pieces)
    graphs = [e for e in entries if e.kind is Kind.GRAPH]
    assert sum(e.n_bytes for e in graphs if "pool" in e.piece) == 3 * MIB * pieces
    assert [e.n_bytes for e in graphs if e.piece == "driver"] == [MIB * pieces]
    assert sum(e.n_bytes for e in entries) == graph.bytes
    parts = {s.part: s.seconds for s in graph_seconds(graph, Phase.PREFILL, 16)}
    assert set(parts) == {"record", "plan", "warm up", "capture"}
    assert sum(parts.values()) == pytest.approx(graph.seconds)


def test_without_memory_for_the_largest_bucket_the_smaller_ones_are_captured() -> None:
    api = FakeApi(fail=no_memory(at=2))
    rig = Rig(backend=cut_at_softmax(api))
    report = rig.runner.capture_all()
    assert [f.bucket for f in report.failures] == [16]
    assert [b.bucket for b in report.buckets] == [8, 4]
    why = rig.buckets.why(16)
    assert "no memory" in why
    assert "Tried to allocate 2 GiB" in why
    assert "smaller or fewer buckets" in why
    assert "\n" not in why


def test_without_memory_for_any_bucket_each_is_tried_once_and_all_batches_run_eager() -> None:
    def never(number: int) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    api = FakeApi(fail=never)
    rig = Rig(backend=cut_at_softmax(api))
    report = rig.runner.capture_all()
    assert api.log.count("begin") == 3
    assert len(report.failures) == 3
    rows = rig.rows(5)
    assert rig.fill(rows).shape == (5, 32)


def test_a_failed_capture_is_ended_and_freed_and_the_next_one_works() -> None:
    api = FakeApi(fail_end=lambda n: fail_once(n))

    def fail_once(number: int) -> None:
        if number == 2:
            raise RuntimeError("CUDA error: capturing stream was invalidated\nfor debugging ...")

    slots = Slots()
    backend = CudaBackend(api, attention=(attend_op(),))
    with pytest.raises(CaptureError, match="stream was invalidated"):
        backend.capture(slots.layers, owned=slots.owned, label="test")
    assert not api.is_open
    assert "abort" in api.log
    slots.refresh(1)
    graph = backend.capture(slots.layers, owned=slots.owned, label="again")
    slots.refresh(1)
    found = graph.replay().clone()
    slots.refresh(1)
    assert torch.equal(found, slots.layers())


def test_an_operation_that_cuda_cannot_capture_is_named_with_its_line() -> None:
    # In a whole capture this attention, which reads on the host, is inside of a graph.
    slots, api = Slots(), FakeApi()
    with pytest.raises(CaptureError, match="not permitted when stream is capturing") as caught:
        slots.capture(slots.layers, api, whole=True)
    assert caught.value.op == str(attend_op())
    assert "segmented.py" in caught.value.where
    assert not api.is_open


def test_out_of_memory_of_the_driver_counts_as_such() -> None:
    def fail(number: int) -> None:
        raise RuntimeError("CUDA error: out of memory")

    slots = Slots()
    with pytest.raises(CaptureMemoryError, match="no memory on cpu for the graph of test"):
        slots.capture(slots.layers, FakeApi(fail=fail))


def test_eager_calls_take_another_pool_and_pieces_never_address_it() -> None:
    slots = Slots()
    graph = slots.capture(slots.layers)
    assert "slot pool" not in graph.captured_owners()
    larger = torch.zeros(32, 4)
    assert graph.rebind({slots.pool.untyped_storage()._cdata: larger}) == 2
    slots.refresh(3, live=4)
    before = graph.replay().clone()
    assert torch.equal(slots.pool, torch.zeros(8, 4))
    assert larger[:4].any()
    slots.refresh(3, live=4)
    assert torch.equal(before[:4], slots.layers()[:4])
