"""Proofs over several sides: windows, bound and unbound units, shared prefixes, media blocks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from firstlight.core.reason import Phase
from firstlight.graphs import BucketState, Extent
from firstlight.graphs.proof import (
    Batch,
    Case,
    Contents,
    Limits,
    Outcome,
    Placed,
    ProofLevel,
    SidedMemory,
    plan_cases,
)
from firstlight.graphs.proof.agree import Reference
from firstlight.graphs.proof.bench import Bench
from firstlight.graphs.proof.cases import media_blocks
from firstlight.graphs.proof.visible import unseen
from tests.graphs.sided import (
    CAPACITY,
    LAYERS,
    PAGES,
    SLIDING,
    WINDOW,
    Parts,
    SidedDecoder,
    SidedPages,
    SidedRig,
)

DECODE = {"phase": Phase.DECODE, "capacity": Extent(3, 3), "buckets": (1, 2, 3)}
LEVELS = [ProofLevel.QUICK, ProofLevel.FULL]


def found(rig: SidedRig, *words: str) -> None:
    findings = rig.findings()
    assert any(all(word in finding for word in words) for finding in findings), findings
    assert BucketState.QUARANTINED in {rig.buckets.state(size) for size in rig.buckets.sizes}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("prefix_lm", [False, True])
@pytest.mark.parametrize("settings", [{"buckets": (4, 20)}, DECODE])
def test_nothing_is_found_in_a_healthy_decoder_of_two_sides(
    settings: dict[str, object], prefix_lm: bool, level: ProofLevel
) -> None:
    rig = SidedRig(Parts(prefix_lm=prefix_lm), level=level, **settings)  # type: ignore[arg-type]
    proof = rig.runner.capture_all().proof
    assert proof is not None
    assert (proof.failed, proof.unread) == ((), ())
    assert max(bucket.worst for bucket in proof.buckets) == 0


def test_the_memory_is_one_of_several_sides() -> None:
    assert isinstance(SidedPages(SidedDecoder()), SidedMemory)


def test_a_proof_leaves_both_pools_and_their_pages_as_they_were() -> None:
    rig = SidedRig()
    rig.memory.free.remove(3)
    rig.memory.bound[3] = rig.memory.free_sliding.pop(4)
    for tensor in rig.memory.state().values():
        tensor.normal_()
    held = {name: tensor.clone() for name, tensor in rig.memory.state().items()}
    assert rig.findings() == []
    for name, tensor in rig.memory.state().items():
        assert tensor[1:].equal(held[name][1:]), name  # captures write to the sink
    assert rig.memory.free == [n for n in range(1, PAGES) if n != 3]
    assert rig.memory.free_sliding == [n for n in range(1, SLIDING) if n != 5]


def limits(rig: SidedRig, bucket: int = 16) -> Limits:
    rig.runner.capture(bucket)
    return rig.runner.subject(bucket).limits(rig.memory)


def case_of(rig: SidedRig, words: str, bucket: int = 16) -> Case:
    return next(c for c in plan_cases(limits(rig, bucket), ProofLevel.FULL) if words in c.name)


def test_a_full_proof_holds_prefixes_as_long_as_the_window_and_beyond() -> None:
    rig = SidedRig(level=ProofLevel.OFF)
    assert case_of(rig, "as long as the window").requests[0][0] == WINDOW
    assert case_of(rig, "beyond the window").requests[0][0] > WINDOW
    assert case_of(rig, "mixed").requests[0][0] > WINDOW


def test_the_mixed_batch_is_a_decoded_row_and_a_chunk_of_a_shared_prefix() -> None:
    case = case_of(SidedRig(level=ProofLevel.OFF), "mixed")
    lengths = [end - start for start, end in case.requests]
    assert lengths == [1, 14]
    assert len(lengths) < CAPACITY.requests
    assert case.shared * 4 <= min(start for start, _ in case.requests[:2])
    assert case.shared > 0


def bench_of(rig: SidedRig, case: Case) -> tuple[Bench, tuple[Placed, ...]]:
    subject = rig.runner.subject(16)
    contents = Contents(rig.contract, rig.registry, rig.memory.max_context)
    bench = Bench(subject, rig.memory, contents, seed=1)
    bench.lend(16, 2)
    return bench, bench.place(case)


def test_requests_of_a_shared_prefix_are_placed_on_the_same_units() -> None:
    rig = SidedRig(level=ProofLevel.OFF)
    case = case_of(rig, "units of another request")
    with bench_of(rig, case)[0] as bench:
        first, second = bench.place(case)
        assert first.units[: case.shared] == second.units[: case.shared]
        assert not set(first.units[case.shared :]) & set(second.units[case.shared :])


def test_what_no_row_sees_is_the_sink_the_guards_the_tail_and_what_left_the_window() -> None:
    rig = SidedRig(level=ProofLevel.OFF)
    case = case_of(rig, "beyond the window")
    with bench_of(rig, case)[0] as bench:
        (request,) = bench.place(case)
        batch = bench.contents.batch(case, (request,), 1)
        bench.fill(batch, 16)
        parts = unseen(bench, batch)
    assert set(parts) == {
        "the sink", "memory of no request", "memory behind the contexts",
        f"positions that left a window of {WINDOW}",
    }  # fmt: skip
    left = parts[f"positions that left a window of {WINDOW}"]
    assert set(left) == {f"{kind} {i}" for kind in ("keys", "values") for i in (0, 2)}
    gone = request.start - WINDOW + 1
    assert int(left["keys 0"].sum()) == gone


def test_units_that_left_the_window_are_not_bound_and_read_as_the_sink() -> None:
    rig = SidedRig(level=ProofLevel.OFF)
    rig.memory.lend(5)
    rig.memory.bind([Placed((1, 2, 3, 4, 5), 16, 18)])
    assert rig.memory.rows("keys 0", [1, 2, 3, 4, 5]) == [0, 0, 1, 2, 3]
    assert rig.memory.rows("keys 1", [1, 2, 3, 4, 5]) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("n", range(1, 40))
@pytest.mark.parametrize("start", [0, 1, 7, 50])
def test_media_blocks_are_computed_whole_or_not_at_all(n: int, start: int) -> None:
    blocks = media_blocks(start, start + n)
    assert all(low < high for low, high in blocks)
    assert all(high <= start or start <= low < high <= start + n for low, high in blocks)
    assert all(a[1] <= b[0] for a, b in pairwise(blocks))
    request = Placed((), start, start + n, blocks)
    for position in range(start, start + n + 1):
        low, high = request.align(position), request.align(position, up=True)
        assert low <= position <= high
        assert not any(a < cut < b for a, b in blocks for cut in (low, high))


# -- faults -----------------------------------------------------------------------------------


class WindowOf(SidedDecoder):
    """The window of the last layer is another."""

    size = WINDOW

    def window(self, layer: int) -> int | None:
        return self.size if layer == 2 else super().window(layer)


class OneWider(WindowOf):
    size = WINDOW + 1


class OneNarrower(WindowOf):
    size = WINDOW - 1


class NoWindow(SidedDecoder):
    """The windowed layers look at their whole context: at unbound pages."""

    def window(self, layer: int) -> int | None:
        return None


class NextPage(SidedDecoder):
    """A row sees the position behind its own."""

    def sees(self, layer: int, position: Tensor, bounds: Tensor | None) -> Tensor:
        return super().sees(layer, position + 1, bounds)


@pytest.mark.parametrize("level", LEVELS)
def test_a_window_one_too_wide_shows_in_positions_that_left_it(level: ProofLevel) -> None:
    found(SidedRig(Parts(OneWider), level=level, buckets=(16,)), "left a window of 6")


@pytest.mark.parametrize("level", LEVELS)
def test_a_window_one_too_narrow_shows_in_the_oldest_position(level: ProofLevel) -> None:
    class Narrow(SidedDecoder):
        def window(self, layer: int) -> int | None:
            return WINDOW - 1 if LAYERS[layer] else None

    rig = SidedRig(Parts(Narrow), level=level, buckets=(16,))
    assert rig.unread() == [
        "the oldest position in a window of 6 is declared, but no output depends on it"
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_reading_the_sink_for_units_that_are_not_bound_is_found(level: ProofLevel) -> None:
    found(SidedRig(Parts(NoWindow), level=level, buckets=(16,)), "the sink")


def test_a_window_one_too_wide_shows_in_the_quick_proof_of_a_large_bucket() -> None:
    rig = SidedRig(Parts(NoWindow), level=ProofLevel.QUICK, buckets=(20,))
    found(rig, "windows of its rows")


def test_rows_that_see_later_ones_are_found() -> None:
    found(SidedRig(Parts(NextPage), buckets=(16,)), "a later row", "comes before it")


class Swapped(SidedPages):
    """The windowed side's pages are looked up on the full side."""

    def physical(self, side: str, unit: int) -> int:
        return super().physical("", unit) % SLIDING


def test_pages_of_the_wrong_side_are_found() -> None:
    found(SidedRig(Parts(memory=Swapped), buckets=(16,)), "")


class Shifted(SidedPages):
    """Bounds are one too far."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        values = super().values(requests)
        return values | {"block_bounds": values["block_bounds"] + 1}


class Dropped(SidedPages):
    """Every row is said to lie outside of blocks."""

    def values(self, requests: Sequence[Placed]) -> dict[str, Tensor]:
        plain = [Placed(r.units, r.start, r.end) for r in requests]
        return super().values(plain)


@pytest.mark.parametrize("level", LEVELS)
def test_bounds_one_too_far_show_in_rows_before_a_block(level: ProofLevel) -> None:
    found(SidedRig(Parts(memory=Shifted, prefix_lm=True), level=level, buckets=(16,)),
          "a later", "comes before it")  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_bounds_that_are_dropped_are_said_to_be_unread(level: ProofLevel) -> None:
    rig = SidedRig(Parts(memory=Dropped, prefix_lm=True), level=level, buckets=(16,))
    assert "media blocks is declared, but no output depends on it" in rig.unread()


def test_a_body_that_ignores_bounds_is_said_to_be_blind_inside_blocks() -> None:
    class Causal(SidedDecoder):
        def sees(self, layer: int, position: Tensor, bounds: Tensor | None) -> Tensor:
            return super().sees(layer, position, None)

    rig = SidedRig(Parts(Causal, prefix_lm=True), buckets=(16,))
    assert "a later row of the same media block is not seen by every row of it" in rig.unread()


@pytest.mark.parametrize("n", range(1, 12))
def test_the_first_rows_of_a_batch_cut_no_media_block(n: int) -> None:
    requests = (Placed((1, 2), 4, 5), Placed((3, 4, 5), 0, 10, ((1, 4), (4, 7))))
    rows, positions = torch.zeros(11, 16), torch.zeros(1, 11, dtype=torch.int64)
    whole = Batch(requests, rows, positions, {})
    reference = Reference(16, whole, Outcome(rows, {}), (), (), {})
    first = reference.first(n)
    assert first is not None
    assert len(first.rows) == sum(map(len, first.requests)) <= n
    end = first.requests[-1].end if len(first.requests) == 2 else 0
    assert end in {0, 1, 4, 7, 8, 9, 10}


def test_where_the_first_rows_would_cut_a_block_in_the_first_request_there_is_none() -> None:
    requests = (Placed((1, 2), 0, 6, ((0, 6),)),)
    whole = Batch(requests, torch.zeros(6, 16), torch.zeros(1, 6, dtype=torch.int64), {})
    assert Reference(8, whole, Outcome(whole.rows, {}), (), (), {}).first(3) is None
