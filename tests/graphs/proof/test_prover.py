"""Proofs of a healthy decoder: nothing found, nothing left behind, at both levels."""

from __future__ import annotations

import pytest
import torch

from firstlight.contract import resolve_contract
from firstlight.core.reason import Phase
from firstlight.graphs import (
    Arena,
    BucketState,
    BucketTable,
    Decider,
    Extent,
    GraphRunner,
    Ownership,
    PaddingIsFree,
    SlotRegistry,
    TapeBackend,
    body_inputs,
    row_slots,
)
from firstlight.graphs.proof import (
    BucketProof,
    Finding,
    Media,
    NoMemory,
    ProofLevel,
    ProofReport,
    Prover,
    plan_cases,
)
from firstlight.graphs.proof.report import unread_text
from tests.graphs.proof.rig import Rig
from tests.paged_decoder import CONTRACT, PAGES

DECODE = {"phase": Phase.DECODE, "capacity": Extent(3, 3), "buckets": (1, 2, 3)}


@pytest.mark.parametrize("level", [ProofLevel.QUICK, ProofLevel.FULL])
@pytest.mark.parametrize("settings", [{}, DECODE, {"capacity": Extent(28, 1)}])
def test_nothing_is_found_in_a_healthy_decoder(
    settings: dict[str, object], level: ProofLevel
) -> None:
    rig = Rig(level=level, **settings)  # type: ignore[arg-type]
    report = rig.runner.capture_all()
    proof = report.proof
    assert proof is not None
    assert (proof.failed, proof.unread, len(proof.buckets)) == ((), (), 3)
    assert max(bucket.worst for bucket in proof.buckets) == 0
    assert {rig.buckets.state(size) for size in rig.buckets.sizes} == {BucketState.READY}


def test_units_are_given_back_and_state_and_slots_are_as_before() -> None:
    rig = Rig()
    keys = rig.decoder.pools[0]
    keys.normal_()
    held = keys.clone()
    rig.runner.capture_all()
    assert rig.memory.free == list(range(1, PAGES))
    assert keys[:, 1:].equal(held[:, 1:])  # captures write to the sink
    assert not rig.registry.buffer("input_embeds").any()


def test_equal_seeds_give_equal_proofs() -> None:
    worst = []
    for _ in range(2):
        proof = Rig(buckets=(12,)).runner.capture_all().proof
        assert proof is not None
        worst.append(proof.buckets[0].worst_alone)
    assert worst[0] == worst[1]


def test_a_full_proof_holds_the_edges_of_a_bucket() -> None:
    rig = Rig(buckets=(4, 12))
    rig.runner.capture_all()
    cases = plan_cases(rig.runner.subject(12).limits(rig.memory), ProofLevel.FULL)
    rows = {case.tokens for case in cases}
    assert {12, 11, 5} <= rows
    assert {len(case.requests) for case in cases} >= {1, 2, 3}
    assert any(start for case in cases for start, _ in case.requests)
    assert {case.media for case in cases} == set(Media)
    assert any(case.unequal for case in cases)
    assert any(case.scattered for case in cases)


def test_a_memory_of_very_few_units_is_enough() -> None:
    rig = Rig(buckets=(4,))
    rig.memory.free = [1, 2]
    assert rig.findings() == []


def test_a_bucket_that_no_legal_batch_fits_is_not_admitted() -> None:
    rig = Rig(buckets=(4,))
    rig.memory.free = []
    assert "no batch of 1 to 4 rows fits 0 free units" in rig.findings()[0]


def test_level_off_admits_without_a_proof() -> None:
    rig = Rig(level=ProofLevel.OFF)
    assert rig.runner.capture_all().proof is None
    assert rig.buckets.state(12) is BucketState.READY


def test_a_later_proof_replaces_the_verdict() -> None:
    rig = Rig(level=ProofLevel.OFF, buckets=(4,))
    rig.runner.capture_all()
    rig.runner.quarantine(4, "doubted")
    report = rig.runner.prove(Prover(CONTRACT, rig.memory, level=ProofLevel.FULL))
    assert report.failed == ()
    assert rig.buckets.state(4) is BucketState.READY


def test_a_summary_begins_with_the_finding_that_names_an_input() -> None:
    findings = (Finding("c", "a", "row 3", 0.5), Finding("c", "b", "segment x", 1, True))
    proof = BucketProof(4, ProofLevel.QUICK, 1, 0.5, None, 0.1, findings)
    assert proof.summary == "b: segment x, by up to 1 (case: c); and 1 more"


def test_a_body_without_memory_needs_no_owner() -> None:
    """A perceptron over rows: no attention, so its positions are found to be unread."""
    contract = resolve_contract([], 8)
    registry = SlotRegistry(Extent(16, 2), Arena())
    for spec in row_slots(contract, torch.float32):
        registry.register(spec)
    registry.allocate()
    layer = torch.nn.Linear(8, 8).requires_grad_(False)
    owned = Ownership()
    owned.add_module(layer)
    buckets = BucketTable((4, 16))
    runner = GraphRunner(
        Phase.PREFILL, registry=registry, buckets=buckets, backend=TapeBackend(),
        body=lambda inputs: layer(inputs.embeds).relu(),
        decider=Decider(Phase.PREFILL, buckets, 2, 32, PaddingIsFree()),
        inputs=lambda rows: body_inputs(registry, contract, Extent(rows, 2)), owned=owned,
        prover=Prover(contract, NoMemory(32), level=ProofLevel.FULL),
    )  # fmt: skip
    proof = runner.capture_all().proof
    assert proof is not None
    assert proof.failed == ()
    assert [f.where for f in proof.unread] == ["positions is declared, but no output depends on it"]


def test_an_input_that_any_bucket_reacts_to_is_read() -> None:
    unread = Finding("c", "a", unread_text("plane x"))
    other = Finding("c", "a", unread_text("plane y"))

    def proof(read: set[str]) -> BucketProof:
        found = (unread, other)
        return BucketProof(4, ProofLevel.FULL, 1, 0, None, 0, (), found, frozenset(read))

    assert ProofReport(ProofLevel.FULL, (proof(set()), proof({"plane x"}))).unread == (other,)


def test_a_place_in_memory_that_is_really_another_is_read() -> None:
    """One request with a prefix among several: their units must not be dealt to it again."""
    rig = Rig(buckets=(12,))
    proof = rig.runner.capture_all().proof
    assert proof is not None
    assert "place in memory" in proof.buckets[0].read


def test_nothing_of_a_proof_is_kept_after_the_captures() -> None:
    rig = Rig(level=ProofLevel.QUICK)
    rig.runner.capture_all()
    assert rig.prover._references == {}
