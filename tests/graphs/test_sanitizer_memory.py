"""What the sanitizer sees of memory that changes behind a graph's back, and of wrong tapes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from firstlight.graphs import BodyInputs, Ownership, TapeGraph
from firstlight.graphs.backends.tape import backend as tape_backend
from firstlight.graphs.backends.tape.plan import MemoryPlan, plan_memory
from firstlight.graphs.sanitizer import FindingKind, TrackedRegistry
from firstlight.graphs.slot import Extent
from tests.graphs.decoder import Decoder
from tests.graphs.sanitized import SanitizedRig, line_of, mutated

K = FindingKind


def test_a_weight_that_is_replaced_after_the_capture_is_found() -> None:
    rig = SanitizedRig()
    rig.serve(8)
    up = rig.decoder.stack[0].up
    up.weight = torch.nn.Parameter(up.weight.clone(), requires_grad=False)
    rig.serve(8)
    finding = rig.only(K.STALE_ADDRESS)
    assert finding.subject == "weight layers.0.up.weight"
    assert finding.op == "aten.addmm.default"
    assert finding.where.rpartition(":")[0].endswith("tests/graphs/decoder.py")


@pytest.mark.parametrize("through_data", [False, True])
def test_a_weight_that_changes_in_place_is_found(through_data: bool) -> None:
    rig = SanitizedRig()
    rig.serve(8)
    bias = rig.decoder.stack[1].norm.bias
    (bias.data if through_data else bias).add_(1)
    rig.serve(8)
    assert rig.only(K.WEIGHT_WRITTEN).subject == "weight layers.1.norm.bias"


def test_a_storage_that_is_resized_is_found() -> None:
    rig = SanitizedRig()
    rig.serve(8)
    bias = rig.decoder.stack[1].norm.bias
    bias.untyped_storage().resize_(1 << 22)
    rig.serve(8)
    assert rig.only(K.STALE_ADDRESS).subject == "weight layers.1.norm.bias"


def test_a_plan_that_puts_living_intermediates_into_one_place_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def wrong(*args: object) -> MemoryPlan:
        plan = plan_memory(*args)  # type: ignore[arg-type]
        return MemoryPlan(dict.fromkeys(plan.offsets, 0), plan.n_bytes, plan.unshared)

    monkeypatch.setattr(tape_backend, "plan_memory", wrong)
    rig = SanitizedRig()
    rig.runner.capture(8)
    found = [f for f in rig.report if f.kind is K.SCRATCH_OVERLAP]
    assert found
    assert all(f.where for f in found)


def test_a_finding_that_recurs_is_listed_once_and_counted() -> None:
    rig = mutated(lambda decoder, inputs: decoder.forward(inputs) - inputs.embeds.mean(0))
    rig.serve(5)
    rig.serve(6)
    assert rig.report.times(rig.only(K.PADDING_READ)) == 2


def test_a_batch_beyond_the_buckets_is_checked_too() -> None:
    rig = SanitizedRig()
    rig.serve(20, merge=lambda into, rows: into[1:].copy_(rows[1:]))
    assert rig.only(K.ROW_UNWRITTEN).bucket is None


def test_extents_that_exceed_the_slots_leave_them_as_they_were() -> None:
    rig = SanitizedRig()
    rig.serve(5)
    before = rig.registry.buffer("positions").clone()
    with pytest.raises(Exception, match="exceeds"):
        rig.runner.fill(rig.values(25), Extent(25, 1), rig.runner.decide(Extent(25, 1), 25))
    assert torch.equal(rig.registry.buffer("positions"), before)


def test_a_leak_that_only_the_stored_keys_show_is_found() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        x = decoder.forward(inputs)
        at = inputs.attention
        assert isinstance(at, Tensor)
        mean = inputs.embeds.mean(0).view(1, 4, -1)
        decoder.stack[0].keys[at] = decoder.stack[0].keys[at] + mean
        return x

    rig = mutated(change)
    rig.serve(5)
    finding = rig.only(K.PADDING_READ)
    assert "pool keys 0 stores other values at page 1, the sink's neighbour" in finding.detail
    assert line_of(finding) == "mean = inputs.embeds.mean(0).view(1, 4, -1)"


def test_a_slot_that_gets_other_memory_after_the_capture_is_found() -> None:
    rig = SanitizedRig()
    rig.serve(8)
    rig.registry._buffers["positions"] = rig.registry.buffer("positions").clone()
    rig.serve(8)
    assert rig.only(K.STALE_ADDRESS).subject == "slot positions"


def test_a_call_that_does_nothing_is_found() -> None:
    rig = SanitizedRig()
    rig.runner.capture_all()
    graph = rig.runner.graphs[8]
    assert isinstance(graph, TapeGraph)
    calls = list(graph.calls)
    step = next(i for i, s in enumerate(graph.steps) if s.op.name == "aten.silu.default")
    calls[step] = lambda: None
    graph._calls = tuple(calls)
    rig.serve(8)
    finding = rig.only(K.STALE_INTERMEDIATE)
    assert "silu" in finding.op
    assert finding.where.rpartition(":")[0].endswith("tests/graphs/decoder.py")


def test_a_result_whose_dead_rows_are_left_undefined_is_found() -> None:
    def change(decoder: Decoder, inputs: BodyInputs) -> Tensor:
        x = decoder.forward(inputs)
        out = torch.empty_like(x)
        torch.add(x[:5], 0, out=out[:5])
        return out * 1

    rig = mutated(change)
    rig.serve(5)
    finding = next(f for f in rig.report if f.bucket == 8)
    assert (finding.kind, finding.subject) == (K.STALE_INTERMEDIATE, "rows of no request")
    assert line_of(finding) == "return out * 1"


def test_slots_that_are_declared_frozen_are_found_and_so_is_what_they_do() -> None:
    class Frozen(TrackedRegistry):
        def own(self, owned: Ownership) -> None:
            for name in self.names:
                owned.add(self.buffer(name), f"slot {name}", frozen=name == "positions")

    rig = SanitizedRig(registry=Frozen)
    rig.serve(8)
    assert rig.only(K.BAKED_CONSTANT).subject == "slot positions"
    assert "live rows 1-7 of the replay differ" in rig.only(K.REPLAY_DIFFERS).detail


def test_a_constant_of_the_graph_that_is_overwritten_is_found() -> None:
    rig = SanitizedRig()
    rig.runner.capture_all()
    graph = rig.runner.graphs[8]
    assert isinstance(graph, TapeGraph)
    for constant in graph.constants:
        constant.tensor.zero_()
    rig.serve(8)
    assert K.REPLAY_DIFFERS in rig.kinds()
