"""A body's slots follow from its contract."""

from __future__ import annotations

import pytest
import torch

from firstlight.contract import MaskKind, Plane, PlaneDType, resolve_contract
from firstlight.core.reason import Phase
from firstlight.errors import ContractError, SlotError
from firstlight.graphs import (
    Arena,
    Extent,
    Meaning,
    Padding,
    SlotRegistry,
    attention_names,
    attention_slots,
    body_inputs,
    body_slots,
    live_boundary,
    phase_extent,
)
from tests.graphs.decoder import HIDDEN, Rig, contract_of


class Planes:
    input_planes = (
        Plane("deepstack", (3, 5)),
        Plane("token_types", (), PlaneDType.INT64, neutral=-1),
        Plane("ple_ids", (2,), PlaneDType.INT32, index=True),
    )


def registry_of(contract: object, capacity: Extent) -> SlotRegistry:
    registry = SlotRegistry(capacity, Arena())
    for spec in body_slots(contract, torch.bfloat16, max_pages=6):  # type: ignore[arg-type]
        registry.register(spec)
    registry.allocate()
    return registry


def test_every_slot_has_its_declared_shape_and_dtype() -> None:
    contract = resolve_contract([Planes], 8, position_rank=3)
    registry = registry_of(contract, Extent(10, 4))
    shapes = {info.name: (info.shape, info.dtype) for info in registry.describe()}
    assert shapes == {
        "input_embeds": ((10, 8), "bfloat16"),
        "positions": ((3, 10), "int64"),
        "deepstack": ((10, 3, 5), "bfloat16"),
        "token_types": ((10,), "int64"),
        "ple_ids": ((10, 2), "int32"),
        "write_locations": ((10,), "int64"),
        "page_table": ((4, 6), "int32"),
        "attention_rows": ((4, 4), "int64"),
        "num_token_non_padded": ((1,), "int32"),
    }


def test_all_index_slots_pad_to_the_sink_in_prefill_as_in_decode() -> None:
    specs = body_slots(resolve_contract([Planes], 8), torch.float32, max_pages=6)
    index = {s.name: s.padding for s in specs if s.meaning is Meaning.INDEX}
    assert index == dict.fromkeys(
        ["positions", "ple_ids", "write_locations", "page_table"], Padding.ZERO
    )


@pytest.mark.parametrize("width", [HIDDEN, 2 * HIDDEN, HIDDEN * 3 // 2])
def test_the_declared_width_is_the_width_of_every_buffer_and_of_the_body(width: int) -> None:
    rig = Rig(width)
    embeds = rig.registry.buffer("input_embeds")
    assert embeds.shape[1] == rig.contract.input_embeds_hidden_size == width
    assert rig.runner.embeds(3).shape == (3, width)
    assert rig.inputs(16).embeds.shape == (16, width)
    rig.runner.capture_all()
    assert rig.fill(rig.rows(5)).shape == (5, HIDDEN)


def test_nothing_declared_means_the_hidden_size() -> None:
    registry = registry_of(resolve_contract([], 12), Extent(4, 1))
    assert registry.buffer("input_embeds").shape == (4, 12)


def test_planes_without_live_data_are_neutral_on_all_rows() -> None:
    contract = resolve_contract([Planes], 8)
    registry = registry_of(contract, Extent(4, 1))
    for name in ("deepstack", "token_types", "ple_ids"):
        registry.buffer(name).fill_(9)
    batch = {
        "positions": torch.zeros(1, 2, dtype=torch.int64),
        "write_locations": torch.zeros(2, dtype=torch.int64),
        "page_table": torch.zeros(1, 6, dtype=torch.int32),
        "attention_rows": torch.zeros(1, 4, dtype=torch.int64),
    }
    registry.fill(batch, Extent(2, 1), Extent(4, 1))
    assert registry.buffer("deepstack").eq(0).all()
    assert registry.buffer("token_types").eq(-1).all()
    assert registry.buffer("ple_ids").eq(0).all()


def test_the_inputs_of_a_body_are_views_of_the_slots() -> None:
    contract = resolve_contract([Planes], 8)
    registry = registry_of(contract, Extent(4, 2))
    inputs = body_inputs(registry, contract, Extent(3, 2), lambda r, e: r.view("page_table", e))
    assert inputs.embeds.data_ptr() == registry.buffer("input_embeds").data_ptr()
    assert inputs.positions.shape == (1, 3)
    assert set(inputs.planes) == {"deepstack", "token_types", "ple_ids"}
    assert isinstance(inputs.attention, torch.Tensor)
    assert inputs.attention.shape == (2, 6)


def test_a_plane_may_not_take_the_name_of_a_slot() -> None:
    class Clash:
        input_planes = (Plane("positions"),)

    with pytest.raises(ContractError, match="rename"):
        body_slots(resolve_contract([Clash], 8), torch.float32, max_pages=1)


def test_the_second_segment_lies_where_the_contract_says() -> None:
    rig = Rig(2 * HIDDEN)
    rig.registry.write("input_embeds", torch.ones(1, HIDDEN), 0, "extra")
    row = rig.registry.buffer("input_embeds")[0]
    extra = contract_of(2 * HIDDEN).segment("extra")
    assert row[extra.start : extra.end].eq(1).all()
    assert row[: extra.start].eq(0).all()


@pytest.mark.parametrize(("rank", "expected"), [(0, 512), (1, 506)])
def test_the_boundary_of_a_rank_follows_from_the_bucket(rank: int, expected: int) -> None:  # A20
    assert live_boundary(1018, 1024, 2, rank, sharded=True) == expected


@pytest.mark.parametrize("live", [0, 3, 511, 512, 513, 1024])
def test_the_boundaries_of_all_ranks_add_up_to_the_live_rows(live: int) -> None:
    assert sum(live_boundary(live, 1024, 4, r, sharded=True) for r in range(4)) == live


def test_without_sharding_the_boundary_is_the_live_count() -> None:  # A21
    assert live_boundary(1018, 1024, 2, 1) == 1018


def test_decode_has_a_request_per_row_and_prefill_all_request_rows() -> None:
    capacity = Extent(64, 8)
    assert phase_extent(Phase.DECODE, 4, capacity) == Extent(4, 4)
    assert phase_extent(Phase.PREFILL, 4, capacity) == Extent(4, 8)


def test_request_rows_beyond_the_batch_are_empty_at_every_prefill() -> None:  # B9
    rig = Rig()
    for name in ("attention_rows", "page_table"):
        rig.registry.buffer(name).fill_(7)
    rig.fill(rig.rows(5))
    for name in ("attention_rows", "page_table"):
        assert rig.registry.buffer(name)[1:].eq(0).all()


def test_padded_rows_write_to_the_sink() -> None:
    rig = Rig()
    rig.registry.buffer("write_locations").fill_(50)
    rig.runner.capture_all()
    rig.fill(rig.rows(5))
    assert rig.registry.buffer("write_locations")[:8].tolist() == [1, 2, 3, 4, 5, 0, 0, 0]
    assert all(layer.keys[6:].eq(0).all() for layer in rig.decoder.stack)


def test_every_side_has_slots_of_its_own_under_its_suffix() -> None:
    contract = resolve_contract([], 8)
    specs = body_slots(contract, torch.float32, max_pages=6, sides=("", ".window_512"))
    assert [s.name for s in specs if s.name.endswith(".window_512")] == [
        "write_locations.window_512",
        "page_table.window_512",
        "attention_rows.window_512",
    ]
    assert {"write_locations", "page_table", "attention_rows"} <= {s.name for s in specs}


def test_the_sides_of_a_registry_are_listed_by_their_triples() -> None:
    for sides in (("",), (".window_8",), ("", ".window_8", ".window_512")):
        names = [spec.name for spec in attention_slots(6, sides)]
        assert [side.suffix for side in attention_names(names)] == list(sides)
        assert [name for side in attention_names(names) for name in side.all] == names


def test_slots_that_only_look_like_a_side_are_none() -> None:
    names = ["write_locations", "page_table", "write_locations_of_mine", "attention_rows.other"]
    assert attention_names(names) == ()


@pytest.mark.parametrize("sides", [("", ""), ("window_8",)])
def test_sides_without_names_of_their_own_are_refused(sides: tuple[str, ...]) -> None:
    with pytest.raises(SlotError, match="different suffixes"):
        attention_slots(6, sides)


def test_only_a_prefix_lm_has_block_bounds_and_they_pad_to_the_empty_range() -> None:
    causal = body_slots(resolve_contract([], 8), torch.float32, max_pages=6)
    contract = resolve_contract([], 8, mask=MaskKind.PREFIX_LM)
    specs = {s.name: s for s in body_slots(contract, torch.float32, max_pages=6)}
    assert "block_bounds" not in {s.name for s in causal}
    bounds = specs["block_bounds"]
    assert (bounds.sizes(Extent(10, 4)), bounds.dtype) == ((10, 2), torch.int64)
    assert (bounds.meaning, bounds.padding, bounds.neutral) == (Meaning.INDEX, Padding.ZERO, 0)
    assert bounds.required


@pytest.mark.parametrize("name", ["block_bounds", "page_table.window_512"])
def test_a_plane_may_not_take_the_name_of_a_slot_of_any_side(name: str) -> None:
    class Clash:
        input_planes = (Plane(name),)

    with pytest.raises(ContractError, match="rename"):
        body_slots(resolve_contract([Clash], 8), torch.float32, max_pages=1)
