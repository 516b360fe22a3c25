"""Filling, viewing and sharing slots; the marks A1 to A22 are the reference's assertions."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from firstlight.contract import Segment
from firstlight.errors import SlotError
from firstlight.graphs import (
    Arena,
    Axis,
    Dim,
    Extent,
    Meaning,
    Ownership,
    Padding,
    SlotRegistry,
    SlotSpec,
    live_tokens_slot,
    padded_tokens_slot,
)

CAPACITY = Extent(tokens=10, requests=6)
LIVE, PADDED = Extent(4, 2), Extent(8, 4)
T, R = (Dim.T,), (Dim.R,)


def slot(name: str, padding: Padding = Padding.ZERO, **options: object) -> SlotSpec:
    return SlotSpec(name, T, torch.int64, Axis.TOKENS, padding, **options)  # type: ignore[arg-type]


def request_slot(name: str, padding: Padding = Padding.ZERO, **options: object) -> SlotSpec:
    return SlotSpec(name, R, torch.int64, Axis.REQUESTS, padding, **options)  # type: ignore[arg-type]


def registry_of(*specs: SlotSpec, poison: bool = True, arena: Arena | None = None) -> SlotRegistry:
    registry = SlotRegistry(CAPACITY, Arena() if arena is None else arena)
    for spec in specs:
        registry.register(spec)
    registry.allocate()
    if poison:
        for name in registry.names:
            registry.buffer(name).fill_(7)
    return registry


def values(name: str, n: int) -> dict[str, Tensor | None]:
    return {name: torch.arange(1, n + 1)}


def test_memory_is_zero_of_the_declared_shape_and_dtype() -> None:  # A2
    buf = registry_of(slot("ids"), poison=False).buffer("ids")
    assert (buf.shape, buf.dtype) == ((10,), torch.int64)
    assert buf.eq(0).all()


def test_a_second_slot_of_the_same_name_is_refused() -> None:  # A3
    registry = registry_of(slot("ids"))
    with pytest.raises(SlotError, match="twice"):
        registry.register(slot("ids"))


def test_a_disabled_slot_has_no_memory_and_is_not_seen() -> None:  # A4
    registry = registry_of(slot("ids", enabled=False))
    assert not registry.has("ids")
    assert registry.names == ()
    assert registry.describe() == []
    with pytest.raises(SlotError, match="no slot 'ids'"):
        registry.buffer("ids")


@pytest.mark.parametrize(
    ("padding", "pad_value", "tail"),
    [(Padding.ZERO, 0, 0), (Padding.SENTINEL, -1, -1), (Padding.KEEP, 0, 7),
     (Padding.FILL_ONCE, 3, 7)],
)  # fmt: skip
def test_heads_are_copied_and_tails_follow_the_policy(  # A5 A6 A7 A8
    padding: Padding, pad_value: int, tail: int
) -> None:
    registry = registry_of(slot("ids", padding, pad_value=pad_value))
    registry.fill(values("ids", 4), LIVE, PADDED)
    assert registry.buffer("ids").tolist() == [1, 2, 3, 4, *[tail] * 4, 7, 7]


def test_a_slot_on_the_request_axis_is_padded_by_requests() -> None:  # A5
    registry = registry_of(request_slot("lens", Padding.SENTINEL, pad_value=1))
    registry.fill(values("lens", 2), LIVE, PADDED)
    assert registry.buffer("lens").tolist() == [1, 2, 1, 1, 7, 7]


def test_a_host_slot_follows_the_same_policy() -> None:  # A5
    spec = request_slot("lens_cpu", Padding.SENTINEL, pad_value=5, device=torch.device("cpu"))
    registry = registry_of(spec)
    registry.fill(values("lens_cpu", 2), LIVE, PADDED)
    assert registry.buffer("lens_cpu").device.type == "cpu"
    assert registry.buffer("lens_cpu").tolist() == [1, 2, 5, 5, 7, 7]


def test_fill_once_writes_the_whole_buffer_at_allocation() -> None:  # A7
    registry = registry_of(slot("ids", Padding.FILL_ONCE, pad_value=9), poison=False)
    assert registry.buffer("ids").tolist() == [9] * 10


def test_a_view_is_the_padded_batch_at_the_address_of_the_slot() -> None:  # A9
    registry = registry_of(slot("ids"))
    view = registry.view("ids", PADDED)
    assert view.shape == (8,)
    assert view.data_ptr() == registry.buffer("ids").data_ptr()


def test_an_overlay_carries_other_fields_and_leaves_its_template_alone() -> None:  # A9
    registry = registry_of(slot("ids"))
    batch: Mapping[str, object] = {"ids": torch.ones(4), "stream": "x", "n": 3}
    merged = registry.overlay(batch, PADDED)
    assert (merged["stream"], merged["n"]) == ("x", 3)
    assert merged["ids"] is not batch["ids"]
    assert isinstance(merged["ids"], Tensor)
    assert merged["ids"].data_ptr() == registry.buffer("ids").data_ptr()
    assert batch["ids"].shape == (4,)  # type: ignore[attr-defined]


def test_a_field_that_the_batch_lacks_is_not_shown_with_old_contents() -> None:  # A10
    assert registry_of(slot("ids")).overlay({}, PADDED) == {"ids": None}


def test_a_missing_value_of_a_required_slot_is_an_error_that_writes_nothing() -> None:  # A10
    registry = registry_of(slot("ids"), slot("other"))
    with pytest.raises(SlotError, match="no value for the slot 'other'"):
        registry.fill(values("ids", 4), LIVE, PADDED)
    assert registry.buffer("ids").eq(7).all()


def test_a_missing_value_of_an_optional_slot_makes_all_rows_neutral() -> None:
    registry = registry_of(slot("types", Padding.SENTINEL, pad_value=-2, required=False))
    registry.fill({"types": None}, LIVE, PADDED)
    assert registry.buffer("types").tolist() == [-2] * 8 + [7, 7]


def test_a_missing_value_leaves_a_kept_slot_alone() -> None:  # A10
    registry = registry_of(slot("types", Padding.KEEP, required=False))
    registry.fill({}, LIVE, PADDED)
    assert registry.buffer("types").eq(7).all()


def test_a_computed_slot_is_always_shown() -> None:  # A11
    registry = registry_of(slot("made", copied=False))
    assert isinstance(registry.overlay({}, PADDED)["made"], Tensor)


def test_hooks_run_after_the_copy_with_live_and_padded_extents() -> None:  # A12
    seen: list[object] = []

    def hook(buf: Tensor, live: Extent, padded: Extent) -> None:
        seen.append((buf[:4].tolist(), live, padded))

    registry = registry_of(slot("ids", hook=hook))
    registry.fill(values("ids", 4), LIVE, PADDED)
    assert seen == [([1, 2, 3, 4], LIVE, PADDED)]


def test_positions_of_three_rows_are_padded_by_columns() -> None:  # A13
    spec = SlotSpec("positions", (3, Dim.T), torch.int64, Axis.TOKENS, meaning=Meaning.INDEX)
    registry = registry_of(spec)
    given = torch.arange(1, 13).view(3, 4)
    registry.fill({"positions": given}, LIVE, PADDED)
    buf = registry.buffer("positions")
    assert torch.equal(buf[:, :4], given)
    assert buf[:, 4:8].eq(0).all()
    assert buf[:, 8:].eq(7).all()
    assert registry.view("positions", PADDED).shape == (3, 8)


def test_embeddings_are_not_copied_and_their_tail_is_zero() -> None:  # A14
    spec = SlotSpec("input_embeds", (Dim.T, 2), torch.float32, Axis.TOKENS, copied=False)
    registry = registry_of(spec)
    registry.fill({"input_embeds": torch.ones(4, 2)}, LIVE, PADDED)
    buf = registry.buffer("input_embeds")
    assert buf[:4].eq(7).all()
    assert buf[4:8].eq(0).all()


def test_without_a_slot_the_batch_keeps_its_own_tensor() -> None:  # A14
    own = torch.ones(4, 2)
    assert registry_of().overlay({"input_embeds": own}, PADDED)["input_embeds"] is own


def test_state_tracking_rows_beyond_the_requests_become_sentinels() -> None:  # A15
    specs = [
        request_slot("track_index", meaning=Meaning.INDEX),
        SlotSpec("track_mask", R, torch.bool, Axis.REQUESTS),
    ]
    registry = registry_of(*specs)
    batch = {"track_index": torch.tensor([5, 6]), "track_mask": torch.tensor([True, True])}
    registry.fill(batch, LIVE, PADDED)
    assert registry.buffer("track_index").tolist() == [5, 6, 0, 0, 7, 7]
    assert registry.buffer("track_mask")[2:4].tolist() == [False, False]


@pytest.mark.parametrize(("padding", "tail"), [(Padding.ZERO, 0), (Padding.KEEP, 7)])
def test_pipeline_inputs_pad_by_the_policy_of_their_phase(  # A16
    padding: Padding, tail: int
) -> None:
    names = {"hidden_states": (6, torch.float32), "topk": (2, torch.int32)}
    specs = [
        SlotSpec(name, (Dim.T, width), dtype, Axis.TOKENS, padding, required=False)
        for name, (width, dtype) in names.items()
    ]
    registry = registry_of(*specs)
    registry.fill({"hidden_states": torch.ones(4, 6)}, LIVE, PADDED)
    buf = registry.buffer("hidden_states")
    assert buf.shape == (10, 6)
    assert buf[:4].eq(1).all()
    assert buf[4:8].eq(tail).all()
    assert buf[8:].eq(7).all()
    assert registry.buffer("topk")[:8].eq(tail).all()


@pytest.mark.parametrize(
    "tensor", [torch.zeros(9, dtype=torch.int64), torch.zeros(10, dtype=torch.int32)]
)
def test_adoption_requires_the_same_shape_and_dtype(tensor: Tensor) -> None:  # A17
    registry = SlotRegistry(CAPACITY, Arena())
    registry.register(slot("ids"))
    with pytest.raises(SlotError, match="to adopt"):
        registry.bind("ids", tensor)


def test_an_adopted_tensor_keeps_its_address() -> None:  # A17
    registry = SlotRegistry(CAPACITY, Arena())
    registry.register(slot("ids"))
    tensor = torch.zeros(10, dtype=torch.int64)
    registry.bind("ids", tensor)
    registry.allocate()
    assert registry.buffer("ids").data_ptr() == tensor.data_ptr()


def test_a_slot_with_memory_adopts_nothing() -> None:
    registry = registry_of(slot("ids"))
    with pytest.raises(SlotError, match="never moves"):
        registry.bind("ids", torch.zeros(10, dtype=torch.int64))


def test_an_unknown_slot_adopts_nothing() -> None:
    with pytest.raises(SlotError, match="no slot"):
        registry_of().bind("ids", torch.zeros(10, dtype=torch.int64))


def test_without_adoption_the_registry_owns_all_shapes() -> None:  # A18
    registry = registry_of(slot("ids"), request_slot("lens"))
    assert [registry.buffer(n).shape for n in registry.names] == [(10,), (6,)]


def test_a_source_stands_in_for_the_entry_of_the_same_name() -> None:
    spec = slot("ids", source=lambda batch: batch["draft"] * 10)
    registry = registry_of(spec)
    registry.fill(values("draft", 4), LIVE, PADDED)
    assert registry.buffer("ids")[:4].tolist() == [10, 20, 30, 40]


def test_a_canary_beyond_the_batch_survives() -> None:  # A19
    registry = registry_of(slot("ids"))
    registry.buffer("ids")[8:] = -1
    registry.fill(values("ids", 4), LIVE, PADDED)
    assert registry.buffer("ids")[8:].tolist() == [-1, -1]


def test_the_live_boundary_is_computed_at_every_fill() -> None:  # A21
    registry = registry_of(live_tokens_slot())
    registry.fill({"num_token_non_padded": torch.tensor([509])}, LIVE, PADDED)
    assert registry.buffer("num_token_non_padded").tolist() == [4]


def test_the_count_of_all_ranks_is_the_bucket_whatever_the_batch_says() -> None:  # A22
    registry = registry_of(padded_tokens_slot("global_tokens", 2))
    registry.fill({"global_tokens": torch.tensor([3, 99])}, LIVE, PADDED)
    assert registry.buffer("global_tokens").tolist() == [8, 8]


@pytest.mark.parametrize(
    "value", [torch.ones(3, dtype=torch.int64), torch.ones(4), torch.ones(1, dtype=torch.int64)]
)
def test_a_value_of_wrong_rows_or_dtype_is_refused_and_nothing_is_written(value: Tensor) -> None:
    registry = registry_of(slot("first"), slot("ids"))
    batch = {"first": torch.ones(4, dtype=torch.int64), "ids": value}
    with pytest.raises(SlotError, match="'ids' takes"):
        registry.fill(batch, LIVE, PADDED)
    assert registry.buffer("first").eq(7).all()


def test_more_rows_than_the_capacity_are_refused() -> None:
    registry = registry_of(slot("ids"))
    with pytest.raises(SlotError, match="exceeds"):
        registry.fill(values("ids", 11), Extent(11, 2), Extent(11, 2))
    with pytest.raises(SlotError, match="does not fit"):
        registry.fill(values("ids", 9), Extent(9, 2), PADDED)


def wide() -> SlotRegistry:
    segments = (Segment("tokens", 0, 2), Segment("extra", 2, 1))
    return registry_of(
        SlotSpec("input_embeds", (Dim.T, 3), torch.bfloat16, Axis.TOKENS, copied=False,
                 segments=segments)
    )  # fmt: skip


def test_segments_without_live_data_are_neutral_on_all_rows_at_every_fill() -> None:
    registry = wide()
    registry.write("input_embeds", torch.full((4, 3), 5.0).bfloat16(), 0)
    registry.fill({}, LIVE, PADDED)
    buf = registry.buffer("input_embeds")
    assert buf[:4, :2].eq(5).all()
    assert buf[:8, 2].eq(0).all()


def test_rows_are_written_whole_or_into_one_segment() -> None:  # C5
    registry = wide()
    registry.fill({}, LIVE, PADDED)
    registry.write("input_embeds", torch.full((2, 1), 3.0).bfloat16(), 1, "extra")
    assert registry.buffer("input_embeds")[:4, 2].tolist() == [0, 3, 3, 0]


@pytest.mark.parametrize(
    ("rows", "start", "segment", "message"),
    [
        (torch.ones(2, 3), 0, None, "torch.float32"),
        (torch.ones(2, 2).bfloat16(), 0, None, r"takes \[2, 3\]"),
        (torch.ones(2, 3).bfloat16(), 9, None, "do not fit"),
        (torch.ones(2, 3).bfloat16(), -1, None, "do not fit"),
        (torch.ones(2, 2).bfloat16(), 0, "extra", "'input_embeds.extra' takes"),
        (torch.ones(2, 1).bfloat16(), 0, "extras", "has tokens, extra"),
    ],
)
def test_a_write_that_does_not_fit_leaves_the_slot_unmodified(  # C6
    rows: Tensor, start: int, segment: str | None, message: str
) -> None:
    registry = wide()
    with pytest.raises(SlotError, match=message):
        registry.check_write("input_embeds", rows, start, segment)
    with pytest.raises(SlotError, match=message):
        registry.write("input_embeds", rows, start, segment)
    assert registry.buffer("input_embeds").eq(7).all()


def test_a_check_writes_nothing() -> None:
    registry = wide()
    registry.check_write("input_embeds", torch.zeros(2, 3).bfloat16())
    assert registry.buffer("input_embeds").eq(7).all()


def test_neutralising_covers_every_slot_up_to_the_bucket() -> None:
    registry = registry_of(slot("ids"), request_slot("lens", Padding.SENTINEL, pad_value=-1))
    registry.neutralise(PADDED)
    assert registry.buffer("ids").tolist() == [0] * 8 + [7, 7]
    assert registry.buffer("lens").tolist() == [-1] * 4 + [7, 7]


def test_registries_of_one_arena_share_equal_slots() -> None:
    arena = Arena()
    first = registry_of(slot("ids"), arena=arena)
    second = registry_of(slot("ids"), slot("other"), arena=arena)
    assert first.buffer("ids").data_ptr() == second.buffer("ids").data_ptr()
    assert second.buffer("other").data_ptr() != second.buffer("ids").data_ptr()


def test_slots_before_allocation_say_so() -> None:
    registry = SlotRegistry(CAPACITY, Arena())
    registry.register(slot("ids"))
    with pytest.raises(SlotError, match="allocate"):
        registry.buffer("ids")


def test_slots_own_their_memory_for_captures() -> None:
    registry, owned = registry_of(slot("ids")), Ownership()
    registry.own(owned)
    assert owned.owner_of(registry.view("ids", PADDED)) == "slot ids"


def test_the_description_gives_real_shapes_and_bytes() -> None:
    (info,) = wide().describe()
    assert (info.name, info.shape, info.dtype, info.bytes) == (
        "input_embeds", (10, 3), "bfloat16", 60,
    )  # fmt: skip
    assert (info.policy, info.meaning, info.axis) == ("zero", "value", "tokens")


def test_the_same_extents_are_filled_again_with_other_values() -> None:
    registry = registry_of(slot("types", Padding.SENTINEL, pad_value=-1, required=False))
    for given, expected in (
        (torch.tensor([1, 2, 3, 4]), [1, 2, 3, 4]),
        (None, [-1] * 4),
        (torch.tensor([5, 6, 7, 8]), [5, 6, 7, 8]),
    ):
        registry.buffer("types").fill_(7)
        registry.fill({"types": given}, LIVE, PADDED)
        assert registry.buffer("types").tolist() == [*expected, -1, -1, -1, -1, 7, 7]


def test_a_slot_registered_after_a_fill_is_filled_too() -> None:
    registry = registry_of(slot("ids"))
    registry.fill(values("ids", 4), LIVE, PADDED)
    registry.register(slot("more"))
    registry.allocate()
    registry.fill({**values("ids", 4), **values("more", 4)}, LIVE, PADDED)
    assert registry.buffer("more")[:4].tolist() == [1, 2, 3, 4]


def test_fills_inside_and_outside_of_inference_mode_mix() -> None:
    registry = registry_of(slot("ids"))
    with torch.inference_mode():
        registry.fill(values("ids", 4), LIVE, PADDED)
    registry.buffer("ids").fill_(7)
    registry.fill(values("ids", 4), LIVE, PADDED)
    assert registry.buffer("ids")[:4].tolist() == [1, 2, 3, 4]


def test_many_different_batches_keep_a_bounded_number_of_plans() -> None:
    registry = SlotRegistry(Extent(400, 1), Arena())
    registry.register(slot("ids"))
    registry.allocate()
    for n in range(1, 400):
        registry.fill(values("ids", n), Extent(n, 1), Extent(400, 1))
    assert len(registry._plans) == 256
    registry.fill(values("ids", 3), Extent(3, 1), Extent(400, 1))
    assert registry.buffer("ids")[:5].tolist() == [1, 2, 3, 0, 0]
