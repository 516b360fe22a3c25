"""Faults that have no way to occur: the construction that stands in their way."""

from __future__ import annotations

import inspect
from dataclasses import fields

import numpy as np
import pytest
import torch

from firstlight.config import EngineConfig
from firstlight.contract import Plane, PlaneDType, resolve_contract
from firstlight.core.reason import Mode, Phase, Reason
from firstlight.engine.explicit import check_buckets
from firstlight.engine.memory_plan import MemoryPlan
from firstlight.errors import ConfigError, ContractError, SlotError
from firstlight.graphs import (
    Arena,
    Axis,
    BodyInputs,
    BucketState,
    BucketTable,
    Decider,
    Dim,
    Extent,
    Meaning,
    Padding,
    PaddingIsFree,
    ScratchArena,
    SlotRegistry,
    SlotSpec,
    TapeGraph,
    live_boundary,
    row_slots,
)
from firstlight.memory.ids import PhysicalPage, VirtualPage
from firstlight.memory.kv_memory import KVMemory
from firstlight.memory.layout import KVLayout
from firstlight.memory.page_map import PageMap
from tests.faults import test_constructions as here
from tests.faults.constructions import CONSTRUCTIONS
from tests.faults.graph_rig import GraphRig, Parts


def test_every_construction_names_a_test_of_this_module() -> None:
    assert [c.test for c in CONSTRUCTIONS if not hasattr(here, c.test)] == []


@pytest.mark.parametrize("padding", [p for p in Padding if p is not Padding.ZERO])
def test_an_index_slot_that_does_not_pad_to_the_sink_cannot_be_declared(padding: Padding) -> None:
    with pytest.raises(SlotError, match="index slots pad to the sink"):
        SlotSpec("track", (Dim.R,), torch.int64, Axis.REQUESTS, padding, -1, meaning=Meaning.INDEX)


def test_an_index_plane_with_another_neutral_value_than_the_sink_is_refused() -> None:
    class Declarer:
        input_planes = (Plane("ids", dtype=PlaneDType.INT64, neutral=-1, index=True),)

    with pytest.raises(ContractError, match="pad to the sink"):
        resolve_contract([Declarer], 8)


def test_a_slot_is_registered_once() -> None:
    registry = SlotRegistry(Extent(4, 1), Arena())
    spec = SlotSpec("rows", (Dim.T, 2), torch.float32, Axis.TOKENS)
    registry.register(spec)
    with pytest.raises(SlotError, match="registered twice"):
        registry.register(spec)

    class Declarer:
        input_planes = (Plane("positions", dtype=PlaneDType.INT64),)

    with pytest.raises(ContractError, match="name of a slot"):
        row_slots(resolve_contract([Declarer], 8), torch.float32)


def test_a_body_gets_rows_and_no_token_ids() -> None:
    assert {f.name for f in fields(BodyInputs)} == {"embeds", "positions", "planes", "attention"}


def test_a_replay_takes_no_arguments() -> None:
    assert list(inspect.signature(TapeGraph.replay).parameters) == ["self"]


def test_the_decision_is_carried_and_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = GraphRig(Parts())
    rig.runner.capture(16)
    made: list[Extent] = []
    decide = Decider.decide

    def counted(self: Decider, live: Extent, max_context: int):  # type: ignore[no-untyped-def]
        made.append(live)
        return decide(self, live, max_context)

    monkeypatch.setattr(Decider, "decide", counted)
    rig.serve()
    assert made == [Extent(13, 2), Extent(5, 1), Extent(2, 2)]


def test_a_buffer_that_was_handed_out_never_moves() -> None:
    arena = Arena()
    first, _ = arena.buffer("rows", (4, 2), torch.float32)
    address = first.data_ptr()
    larger, _ = arena.buffer("rows", (64, 2), torch.float32)
    again, fresh = arena.buffer("rows", (4, 2), torch.float32)
    assert not fresh
    assert again.data_ptr() == address == first.data_ptr()
    assert larger.data_ptr() != address
    registry = SlotRegistry(Extent(4, 1), arena)
    registry.register(SlotSpec("rows", (Dim.T, 2), torch.float32, Axis.TOKENS))
    registry.allocate()
    with pytest.raises(SlotError, match="never moves"):
        registry.bind("rows", torch.zeros(4, 2))


def test_scratch_memory_is_never_resized_or_freed() -> None:
    arena = ScratchArena()
    small = arena.reserve(64).storage
    address, size = small.data_ptr(), small.nbytes()
    large = arena.reserve(4096).storage
    assert (small.data_ptr(), small.nbytes()) == (address, size)
    assert arena.bytes == size + large.nbytes()


def test_a_bucket_that_was_asked_for_and_can_never_replay_is_refused() -> None:
    config = EngineConfig(prefill_buckets=(16, 4096, 8192), max_num_seqs=1)
    memory = MemoryPlan(n_pages=64, page_size=16, max_context=128)
    with pytest.raises(ConfigError, match="8192, whose graph would never replay"):
        check_buckets(config, memory)


def test_a_quarantined_bucket_is_never_decided_for() -> None:
    buckets = BucketTable((8, 16))
    decider = Decider(Phase.PREFILL, buckets, 4, 64, PaddingIsFree())
    buckets.mark(8, BucketState.READY)
    assert decider.decide(Extent(8, 1), 8).bucket == 8
    buckets.mark(8, BucketState.QUARANTINED, "it was wrong")
    decision = decider.decide(Extent(8, 1), 8)
    assert (decision.mode, decision.bucket) == (Mode.EAGER, None)
    assert decision.reason is Reason.QUARANTINED


@pytest.mark.parametrize("live", [1, 5, 8, 9, 16])
def test_the_live_rows_of_all_ranks_add_up_whatever_the_bucket(live: int) -> None:
    shares = [live_boundary(live, 16, 4, rank, sharded=True) for rank in range(4)]
    assert sum(shares) == live
    assert all(share == 4 for share in shares[: live // 4])


def test_every_map_has_an_entry_for_each_virtual_page() -> None:
    layout = KVLayout.of([None, 32], max_context=1024)
    memory = KVMemory(layout, 200, (200, 9), page_size=16, prefix_cache=True)
    assert [pages.n_virtual for pages in memory.maps] == [200, 200]
    assert [pages.translate(np.array([199])).tolist() for pages in memory.maps] == [[199], [0]]


@pytest.mark.parametrize("page_size", [1, 2, 16])
def test_a_page_is_translated_once_at_any_page_size(page_size: int) -> None:
    pages = PageMap(8)
    pages.bind(VirtualPage(1), PhysicalPage(2))
    pages.bind(VirtualPage(2), PhysicalPage(5))
    assert pages.translate(np.array([1, 2])).tolist() == [2, 5]
    slots = np.array([page_size, 2 * page_size, 3 * page_size - 1])
    found = pages.translate_slots(slots, page_size)
    assert found.tolist() == [2 * page_size, 5 * page_size, 6 * page_size - 1]
