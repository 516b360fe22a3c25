"""Tolerances from measured spreads, and memory that comes and goes between replays."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from firstlight.graphs import BucketState, Graph
from firstlight.graphs.proof import ProofLevel, Tolerance
from firstlight.graphs.proof.churn import ALL_PAIRS, churn, replay_order
from tests.graphs.proof.rig import FaultyTape, PagedDecoder, Rig

MEASURED = Tolerance(replay=None)


class Wavering(PagedDecoder):
    """Rounds by the number of rows, as a library does that chooses another algorithm by shape."""

    size = 1e-5

    def forward(self, inputs: object) -> Tensor:
        """Hidden states, a little off."""
        hidden = super().forward(inputs)  # type: ignore[arg-type]
        return hidden + self.size * (hidden.shape[0] % 5)


def shifted(by: float) -> FaultyTape:
    """Replays that give other numbers than eager runs."""

    def replay(graph: Graph) -> Tensor:
        return graph.replay() + by

    return FaultyTape(replay)


def states(rig: Rig) -> set[BucketState]:
    """Of all buckets, captured now."""
    rig.runner.capture_all()
    return {rig.buckets.state(size) for size in rig.buckets.sizes}


def test_a_body_whose_eager_runs_agree_allows_its_replays_nothing() -> None:
    rig = Rig(tolerance=MEASURED, backend=shifted(1e-3))
    assert states(rig) == {BucketState.QUARANTINED}


def test_a_replay_may_differ_by_what_eager_runs_at_other_shapes_differ_by() -> None:
    rig = Rig(Wavering(), tolerance=MEASURED, backend=shifted(1e-5))
    assert states(rig) == {BucketState.READY}


def test_the_same_replays_are_refused_where_bits_must_be_equal() -> None:
    assert states(Rig(Wavering(), backend=shifted(1e-5))) == {BucketState.QUARANTINED}


def test_a_lost_row_is_far_beyond_the_measured_spread() -> None:
    def replay(graph: Graph) -> Tensor:
        hidden = graph.replay().clone()
        hidden[0] = hidden[1]
        return hidden

    rig = Rig(Wavering(), tolerance=MEASURED, backend=FaultyTape(replay))
    assert states(rig) == {BucketState.QUARANTINED}


def test_a_body_that_wavers_too_much_cannot_be_proven_and_says_so() -> None:
    decoder = Wavering()
    decoder.size = 0.1
    rig = Rig(decoder, tolerance=MEASURED, buckets=(4,))
    rig.runner.capture_all()
    assert "too far apart to compare a replay with" in rig.buckets.why(4)


@pytest.mark.parametrize("n", [1, 2, 5, ALL_PAIRS])
def test_every_bucket_follows_every_bucket(n: int) -> None:
    buckets = [2**i for i in range(n)]
    order = replay_order(buckets, seed=3)
    assert sorted(pairwise(order)) == sorted((a, b) for a in buckets for b in buckets)


def test_of_many_buckets_each_comes_twice() -> None:
    buckets = list(range(1, ALL_PAIRS + 2))
    assert sorted(replay_order(buckets, seed=3)) == sorted([*buckets, *buckets])


def test_churn_takes_memory_that_nobody_holds() -> None:
    # As a graph that held addresses alone would: the memory is let go and looked at again.
    lost = [torch.zeros(1024, dtype=torch.uint8) for _ in range(8)]
    addresses = {t.data_ptr() for t in lost}
    del lost
    taken: set[int] = set()
    real = torch.full

    def full(*given: object, **options: object) -> Tensor:
        made: Tensor = real(*given, **options)  # type: ignore[call-overload]
        taken.add(made.data_ptr())
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "full", full)
        churn(torch.device("cpu"))
    assert taken & addresses


def test_the_proof_of_all_orders_churns_memory_between_replays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from firstlight.graphs.proof import prover

    seen: list[str] = []
    monkeypatch.setattr(prover, "churn", lambda device: seen.append(device.type))
    rig = Rig(level=ProofLevel.FULL, buckets=(4, 12))
    rig.runner.capture_all()
    assert seen == ["cpu"] * 5
