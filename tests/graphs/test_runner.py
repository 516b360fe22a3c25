"""The runner: graph and eager over the same slots, captures, reports."""

from __future__ import annotations

import gc
import random
from dataclasses import dataclass

import pytest
import torch

from firstlight.core.reason import Mode, Phase, Reason
from firstlight.errors import CaptureError, HostReadError, SlotError
from firstlight.graphs import (
    BodyInputs,
    BucketState,
    EagerBackend,
    Extent,
    TapeBackend,
    dummy_lengths,
)
from tests.graphs.decoder import HIDDEN, Rig

WIDTHS = [HIDDEN, 2 * HIDDEN, HIDDEN * 3 // 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("width", WIDTHS)
def test_replay_equals_eager_bit_for_bit_with_fresh_inputs(width: int, dtype: torch.dtype) -> None:
    rig = Rig(width, dtype=dtype)
    rig.runner.capture_all()
    for seed in range(3):
        rows = rig.rows(8, seed)
        rig.decoder.clear()
        replayed = rig.fill(rows).clone()
        rig.decoder.clear()
        assert torch.equal(replayed, rig.fill(rows, eager=True))


def test_padded_rows_do_not_change_live_ones() -> None:
    rig = Rig()
    rig.runner.capture_all()
    rows = rig.rows(5)
    replayed = rig.fill(rows).clone()
    rig.decoder.clear()
    torch.testing.assert_close(replayed, rig.fill(rows, eager=True), rtol=1e-5, atol=1e-5)


def test_replay_runs_no_module_code() -> None:
    rig = Rig()
    rig.runner.capture_all()
    before = rig.decoder.calls
    rig.fill(rig.rows(7))
    assert rig.decoder.calls == before


def test_replay_writes_the_kv_memory_that_a_later_batch_reads() -> None:
    rig = Rig()
    rig.runner.capture_all()
    rows = rig.rows(12)
    whole = rig.fill(rows, eager=True).clone()
    rig.decoder.clear()
    rig.fill(rows[:8])
    chunk = rig.fill(rows[8:], start=8)
    torch.testing.assert_close(chunk, whole[8:], rtol=1e-5, atol=1e-5)


def test_a_wider_row_changes_the_result_through_its_extra_segment() -> None:
    rig = Rig(2 * HIDDEN)
    rig.runner.capture_all()
    rows = rig.rows(8)
    with_segment = rig.fill(rows).clone()
    rows[:, HIDDEN:] = 0
    assert not torch.equal(with_segment, rig.fill(rows))


def test_buckets_replay_right_in_any_order_over_one_arena() -> None:
    rig = Rig()
    rig.runner.capture_all()
    sizes = [3, 16, 4, 9, 1, 8, 15, 2, 16, 5]
    random.Random(0).shuffle(sizes)
    for seed, n in enumerate(sizes):
        rows = rig.rows(n, seed)
        rig.decoder.clear()
        replayed = rig.fill(rows).clone()
        rig.decoder.clear()
        torch.testing.assert_close(replayed, rig.fill(rows, eager=True), rtol=1e-5, atol=1e-5)


def test_allocator_churn_between_replays_changes_nothing() -> None:
    rig = Rig()
    rig.runner.capture_all()
    gc.collect()
    rows = {n: rig.rows(n, n) for n in (4, 8, 16)}
    expected = {}
    for n, given in rows.items():
        rig.decoder.clear()
        expected[n] = rig.fill(given).clone()
    for n in (4, 16, 4, 8, 16):
        churn = [torch.full((size,), float("nan")) for size in (64, 256, 1024, 4096) * 8]
        del churn
        rig.decoder.clear()
        assert torch.equal(rig.fill(rows[n]), expected[n])


def test_capture_and_replay_see_the_addresses_of_the_slots() -> None:
    rig = Rig()
    seen: list[int] = []

    def body(inputs: BodyInputs) -> torch.Tensor:
        seen.append(inputs.embeds.data_ptr())
        seen.append(inputs.positions.data_ptr())
        return rig.decoder.forward(inputs)

    rig.runner._body = body
    rig.runner.capture_all()
    rig.fill(rig.rows(6), eager=True)
    slots = [rig.registry.buffer(name).data_ptr() for name in ("input_embeds", "positions")]
    assert seen == slots * (len(seen) // 2)
    graph = rig.runner.graphs[8]
    assert [graph.owner_of(address) for address in slots] == [  # type: ignore[attr-defined]
        "slot input_embeds", "slot positions",
    ]  # fmt: skip


def test_eager_batches_may_be_longer_than_the_largest_bucket() -> None:
    rig = Rig(buckets=(4, 8))
    rig.runner.capture_all()
    assert rig.fill(rig.rows(20)).shape == (20, HIDDEN)
    assert rig.runner.counter.counts()[Phase.PREFILL, Reason.NO_BUCKET] == 1


def test_decode_pads_requests_with_rows() -> None:
    rig = Rig(buckets=(1, 2, 3), phase=Phase.DECODE, capacity=Extent(3, 3))
    rig.runner.capture_all()
    assert rig.runner.extent(2) == Extent(2, 2)
    assert rig.fill(rig.rows(2)).shape == (2, HIDDEN)


def test_prefill_always_pads_to_all_request_rows() -> None:
    rig = Rig()
    assert rig.runner.extent(8) == Extent(8, 3)


def test_every_run_is_counted_by_phase_and_reason() -> None:
    rig = Rig()
    rig.fill(rig.rows(4))
    rig.runner.capture_all()
    rig.fill(rig.rows(4))
    rig.fill(rig.rows(4))
    counts = rig.runner.counter.counts()
    assert counts[Phase.PREFILL, Reason.NOT_CAPTURED] == 1
    assert counts[Phase.PREFILL, Reason.CAPTURED] == 2
    assert counts[Phase.DECODE, Reason.CAPTURED] == 0


def test_buckets_are_captured_largest_first_with_progress() -> None:
    rig = Rig()
    calls: list[tuple[int, int, int]] = []
    report = rig.runner.capture_all(lambda *call: calls.append(call))
    assert [b.bucket for b in report.buckets] == [16, 8, 4]
    assert calls == [(0, 3, 16), (1, 3, 8), (2, 3, 4), (3, 3, 0)]


def test_the_report_gives_bytes_seconds_and_ops_of_each_bucket() -> None:
    report = Rig().runner.capture_all()
    assert [b.ops > 0 and b.seconds > 0 for b in report.buckets] == [True] * 3
    assert report.buckets[0].bytes > 0
    assert report.bytes == sum(b.bytes for b in report.buckets)


def test_smaller_buckets_reuse_the_scratch_memory_of_the_largest() -> None:
    backend = TapeBackend()
    rig = Rig(backend=backend)
    rig.runner.capture(16)
    before = backend.scratch.bytes
    rig.runner.capture(8)
    assert backend.scratch.bytes == before


def test_a_body_that_cannot_be_captured_stops_the_capture_after_one_bucket() -> None:
    rig = Rig()
    calls: list[int] = []

    def body(inputs: BodyInputs) -> torch.Tensor:
        calls.append(inputs.embeds.shape[0])
        return inputs.embeds * inputs.embeds.sum().item()

    rig.runner._body = body
    report = rig.runner.capture_all()
    assert calls == [16]
    assert [f.bucket for f in report.failures] == [16]
    assert report.stopped is not None
    decision = rig.runner.decide(Extent(4, 1), 4)
    assert (decision.mode, decision.reason) == (Mode.EAGER, Reason.CAPTURE_FAILED)
    assert "test_runner.py" in decision.detail


@dataclass
class FailsFor:
    """A backend that fails for one bucket."""

    bucket: str
    error: Exception
    name: str = "fails"

    def capture(self, fn, *, owned, label):  # type: ignore[no-untyped-def]
        if label.endswith(self.bucket):
            raise self.error
        return EagerBackend().capture(fn, owned=owned, label=label)


@pytest.mark.parametrize("error", [RuntimeError("no memory"), CaptureError("odd")])
def test_a_later_bucket_that_fails_leaves_the_others(error: Exception) -> None:
    rig = Rig(backend=FailsFor(" 8", error))
    report = rig.runner.capture_all()
    assert [b.bucket for b in report.buckets] == [16, 4]
    assert [(f.bucket, f.error) for f in report.failures] == [(8, str(error))]
    assert rig.runner.decide(Extent(8, 1), 8).reason is Reason.CAPTURE_FAILED
    assert rig.runner.decide(Extent(4, 1), 4).bucket == 4


def test_a_single_capture_raises_what_is_wrong() -> None:
    rig = Rig()
    rig.runner._body = lambda inputs: inputs.embeds * float(inputs.embeds[0, 0])
    with pytest.raises(HostReadError):
        rig.runner.capture(8)
    assert rig.buckets.state(8) is BucketState.FAILED


def test_a_quarantined_bucket_runs_eager_and_says_why() -> None:
    rig = Rig()
    rig.runner.capture_all()
    rig.runner.quarantine(8, "replay differs in row 3")
    decision = rig.runner.decide(Extent(8, 1), 8)
    assert decision.reason is Reason.QUARANTINED
    assert "row 3" in decision.detail


def test_capture_leaves_index_slots_at_the_sink() -> None:
    rig = Rig()
    rig.registry.buffer("write_locations").fill_(40)
    rig.runner.capture(16)
    assert rig.registry.buffer("write_locations")[:16].eq(0).all()
    assert all(layer.keys[1:].eq(0).all() for layer in rig.decoder.stack)


def test_a_planned_dummy_batch_is_in_the_slots_at_capture() -> None:
    rig = Rig()
    locations = rig.registry.buffer("write_locations")

    def plan(rows: int) -> None:
        locations[:rows] = torch.arange(1, rows + 1)

    rig.runner._plan_dummy = plan
    rig.runner.capture(16)
    written = rig.decoder.stack[0].keys.abs().sum((1, 2)) > 0
    assert written.tolist() == [False] + [True] * 16 + [False] * 48


def test_a_bucket_beyond_the_slots_is_refused() -> None:
    with pytest.raises(SlotError, match="largest bucket"):
        Rig(buckets=(64,))


@pytest.mark.parametrize(
    ("tokens", "limit", "expected"), [(10, 4, [4, 4, 2]), (8, 4, [4, 4]), (3, 4, [3])]
)
def test_a_dummy_batch_has_the_fewest_legal_requests(
    tokens: int, limit: int, expected: list[int]
) -> None:
    assert dummy_lengths(tokens, limit, 3) == expected


def test_a_dummy_batch_that_needs_too_many_requests_is_refused() -> None:
    with pytest.raises(SlotError, match="need 3 requests"):
        dummy_lengths(10, 4, 2)


def test_scratch_memory_poisoned_between_replays_changes_nothing() -> None:
    backend = TapeBackend()
    rig = Rig(2 * HIDDEN, backend=backend)
    rig.runner.capture_all()
    rows = {n: rig.rows(n, n) for n in (3, 8, 13)}
    expected = {}
    for n, given in rows.items():
        rig.decoder.clear()
        expected[n] = rig.fill(given).clone()
    for n in (3, 13, 8, 3):
        for block in backend.scratch._blocks:
            torch.empty(0, dtype=torch.uint8).set_(block).fill_(0xFF)  # NaN in every float type
        rig.decoder.clear()
        assert torch.equal(rig.fill(rows[n]), expected[n])


def test_of_the_buckets_that_are_not_wanted_now_the_largest_alone_is_captured() -> None:
    rig = Rig()
    report = rig.runner.capture_all(now=(4,))
    assert sorted(rig.runner.graphs) == [4, 16]
    assert [bucket.bucket for bucket in report.buckets] == [16, 4]
    assert [rig.buckets.state(size) for size in (4, 8, 16)] == [
        BucketState.READY,
        BucketState.WAITING,
        BucketState.UNPROVEN,
    ]
    assert rig.runner.late == (8, 16)


def test_a_captured_bucket_serves_nobody_before_it_is_proven() -> None:
    rig = Rig()
    rig.runner.capture_all(now=(4,))
    decision = rig.runner.decide(Extent(12, 1), 12)
    assert (decision.mode, decision.reason) == (Mode.EAGER, Reason.NOT_PROVEN)


def test_a_late_bucket_replays_as_eager_once_it_is_completed() -> None:
    rig = Rig()
    rig.runner.capture_all(now=(4,))
    for bucket in rig.runner.late:
        rig.runner.complete(bucket)
    assert rig.runner.late == ()
    for n in (3, 7, 16):
        assert rig.runner.decide(Extent(n, 1), n).reason is Reason.CAPTURED
    rows = rig.rows(16, 1)
    replayed = rig.fill(rows).clone()
    rig.decoder.clear()
    assert torch.equal(replayed, rig.fill(rows, eager=True))


def test_a_body_that_no_graph_holds_fails_the_late_buckets_as_well() -> None:
    rig = Rig()
    rig.runner._body = lambda inputs: inputs.embeds * inputs.embeds.sum().item()
    report = rig.runner.capture_all(now=(4,))
    assert report.stopped is not None
    assert {rig.buckets.state(size) for size in (4, 8, 16)} == {BucketState.FAILED}
    assert rig.runner.late == ()
