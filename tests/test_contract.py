"""The input contract: declared once, checked, and the one source of every width."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from firstlight.contract import (
    InputContract,
    MaskKind,
    Plane,
    PlaneDType,
    Segment,
    resolve_contract,
)
from firstlight.errors import ContractError, ProbeError

HIDDEN = 64


def _declarer(name: str = "Model", /, **attributes: Any) -> type:
    return type(name, (), attributes)


def _resolve(*declarers: object) -> InputContract:
    return resolve_contract(declarers, HIDDEN)


# -- the two branches --------------------------------------------------------------------------


def test_nothing_declared_is_one_segment_of_the_hidden_size() -> None:
    contract = _resolve(_declarer())
    assert contract.segments == (Segment("tokens", 0, HIDDEN),)
    assert contract.input_embeds_hidden_size == contract.hidden_size == HIDDEN
    assert not contract.declared
    assert contract.planes == ()
    assert contract.hc_hidden_size is None


@pytest.mark.parametrize("width", [32, 64, 96, 128, 192])
def test_a_declared_width_is_the_width_whatever_the_hidden_size(width: int) -> None:
    contract = _resolve(_declarer("Wide", input_embeds_hidden_size=width))
    assert contract.input_embeds_hidden_size == width
    assert contract.hidden_size == HIDDEN
    assert contract.declared_by == "Wide"


def test_declared_segments_lie_side_by_side_in_their_order() -> None:
    parts = [("tokens", 64), ("deepstack.0", 64), ("deepstack.1", 32)]
    contract = _resolve(_declarer(input_segments=parts))
    assert [(s.name, s.start, s.end) for s in contract.segments] == [
        ("tokens", 0, 64),
        ("deepstack.0", 64, 128),
        ("deepstack.1", 128, 160),
    ]
    assert contract.input_embeds_hidden_size == 160
    assert contract.segment("deepstack.1").width == 32
    with pytest.raises(KeyError):
        contract.segment("deepstack.2")


def test_an_instance_may_compute_what_it_declares() -> None:
    class Adapter:
        def __init__(self, layers: int) -> None:
            self.layers = layers

        @property
        def input_segments(self) -> list[tuple[str, int]]:
            return [("tokens", HIDDEN), *((f"deepstack.{i}", HIDDEN) for i in range(self.layers))]

    assert _resolve(Adapter(3)).input_embeds_hidden_size == 4 * HIDDEN
    assert _resolve(Adapter(0)).input_embeds_hidden_size == HIDDEN


def test_a_torch_module_may_declare() -> None:
    class Model(torch.nn.Module):
        input_embeds_hidden_size = 2 * HIDDEN

    assert _resolve(Model()).input_embeds_hidden_size == 2 * HIDDEN
    assert not _resolve(torch.nn.Linear(2, 2)).declared


def test_a_subclass_inherits_and_overrides_the_declaration() -> None:
    base = _declarer(input_embeds_hidden_size=128)
    assert _resolve(type("Child", (base,), {})).input_embeds_hidden_size == 128
    child = type("Child", (base,), {"input_embeds_hidden_size": 192})
    assert _resolve(child).input_embeds_hidden_size == 192


def test_a_contract_cannot_be_changed() -> None:
    contract = _resolve(_declarer())
    with pytest.raises(FrozenInstanceError):
        contract.hidden_size = 1  # type: ignore[misc]


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("width", [0, -64, 64.0, "64", True, [64], torch.tensor(64)])
@pytest.mark.parametrize("attribute", ["input_embeds_hidden_size", "hc_hidden_size"])
def test_a_width_that_is_no_positive_int_is_refused(attribute: str, width: object) -> None:
    with pytest.raises(ContractError, match=rf"Model declares {attribute} = .*positive int"):
        _resolve(_declarer(**{attribute: width}))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("inputs_embeds_hidden_size", "input_embeds_hidden_size"),
        ("input_embed_hidden_size", "input_embeds_hidden_size"),
        ("input_embeddings_hidden_size", "input_embeds_hidden_size"),
        ("input_embeds_hiden_size", "input_embeds_hidden_size"),
        ("input_embeds_hidden_dim", "input_embeds_hidden_size"),
        ("inputs_embed_hidden_size", "input_embeds_hidden_size"),
        ("input_segment", "input_segments"),
        ("inputs_segments", "input_segments"),
        ("input_plane", "input_planes"),
        ("hc_hiddensize", "hc_hidden_size"),
        ("hc_hidden_sizes", "hc_hidden_size"),
    ],
)
def test_a_name_that_is_almost_right_is_refused_with_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(ContractError, match=f"{name!r}.*did you mean {meant!r}"):
        _resolve(_declarer(**{name: 128}))


def test_a_near_miss_on_an_instance_or_a_base_is_found() -> None:
    instance = _declarer()()
    instance.inputs_embeds_hidden_size = 128
    with pytest.raises(ContractError, match="did you mean"):
        _resolve(instance)
    base = _declarer(input_embed_hidden_size=128)
    with pytest.raises(ContractError, match="did you mean"):
        _resolve(type("Child", (base,), {}))


@pytest.mark.parametrize(
    "name",
    [
        "hidden_size",
        "text_hidden_size",
        "fc_hidden_size",
        "input_ids",
        "inputs_embeds",
        "input_embeds",
        "get_input_embeddings",
        "input_size",
        "main_input_name",
        "input_modalities",
    ],
)
def test_names_in_ordinary_use_are_no_near_misses(name: str) -> None:
    assert not _resolve(_declarer(**{name: 128})).declared


def test_segments_that_do_not_add_up_to_the_declared_width_are_refused_with_both() -> None:
    model = _declarer(input_embeds_hidden_size=128, input_segments=[("tokens", 64), ("more", 32)])
    with pytest.raises(ContractError, match=r"= 128, but .*add up to 96 \(tokens=64, more=32\)"):
        _resolve(model)


def test_segments_that_do_add_up_may_stand_beside_the_width() -> None:
    model = _declarer(input_embeds_hidden_size=96, input_segments=[("tokens", 64), ("more", 32)])
    assert len(_resolve(model).segments) == 2


@pytest.mark.parametrize(
    "parts",
    [[], "tokens", 64, [64], [("tokens", 64, 0)], [("tokens",)], [(1, 64)], {"tokens": 64}, ["ab"]],
)
def test_segments_of_another_form_are_refused(parts: object) -> None:
    with pytest.raises(ContractError, match="input_segments"):
        _resolve(_declarer(input_segments=parts))


def test_a_segment_declared_twice_is_refused() -> None:
    with pytest.raises(ContractError, match="'tokens' twice"):
        _resolve(_declarer(input_segments=[("tokens", 64), ("tokens", 64)]))


@pytest.mark.parametrize("rank", [0, 2, 5])
def test_other_position_ranks_are_refused(rank: int) -> None:
    with pytest.raises(ContractError, match="accepted are 1, 3 and 4"):
        resolve_contract([], HIDDEN, position_rank=rank)


def test_rank_and_mask_are_taken_over() -> None:
    contract = resolve_contract([], HIDDEN, position_rank=3, mask=MaskKind.PREFIX_LM)
    assert (contract.position_rank, contract.mask) == (3, MaskKind.PREFIX_LM)


@pytest.mark.parametrize("mask", ["prefix_lm", None, True])
def test_a_mask_of_no_known_kind_is_refused(mask: Any) -> None:
    with pytest.raises(ContractError, match=r"accepted are MaskKind.CAUSAL, MaskKind.PREFIX_LM"):
        resolve_contract([], HIDDEN, mask=mask)


@pytest.mark.parametrize("hidden", [0, -1, 1.5, None])
def test_the_configurations_hidden_size_is_checked_too(hidden: Any) -> None:
    with pytest.raises(ContractError, match="the configuration declares hidden_size"):
        resolve_contract([], hidden)


# -- several declarers -------------------------------------------------------------------------


def test_two_that_declare_different_widths_are_refused_with_both_names() -> None:
    adapter = _declarer("Adapter", input_embeds_hidden_size=128)
    model = _declarer("Model", input_embeds_hidden_size=192)
    with pytest.raises(ContractError, match=r"Adapter .*= 128, but Model declares 192"):
        _resolve(adapter, model)


@pytest.mark.parametrize("swapped", [False, True])
def test_of_two_equal_widths_the_one_with_segments_is_used(swapped: bool) -> None:
    pair = [
        _declarer("Model", input_embeds_hidden_size=128),
        _declarer("Adapter", input_segments=[("tokens", 64), ("deepstack.0", 64)]),
    ]
    contract = _resolve(*(reversed(pair) if swapped else pair))
    assert [s.name for s in contract.segments] == ["tokens", "deepstack.0"]
    assert contract.declared_by == "Adapter"


def test_two_that_cut_the_same_width_differently_are_refused() -> None:
    first = _declarer("Adapter", input_segments=[("tokens", 64), ("deepstack.0", 64)])
    second = _declarer("Model", input_segments=[("tokens", 96), ("deepstack.0", 32)])
    with pytest.raises(ContractError, match=r"different input_segments: tokens=64.*tokens=96"):
        _resolve(first, second)


def test_planes_of_all_declarers_are_collected_once() -> None:
    types = Plane("token_types", dtype=PlaneDType.INT64)
    layers = Plane("per_layer_ids", dtype=PlaneDType.INT64, index=True)
    contract = _resolve(
        _declarer(input_planes=[types, layers]), _declarer("Other", input_planes=(types,))
    )
    assert contract.planes == (types, layers)


def test_planes_that_contradict_each_other_are_refused() -> None:
    first = _declarer(input_planes=[Plane("types")])
    second = _declarer("Other", input_planes=[Plane("types", shape=(4,))])
    with pytest.raises(ContractError, match="'types' is declared twice, differently"):
        _resolve(first, second)


def test_a_plane_must_be_a_plane_and_an_index_plane_pads_to_the_sink() -> None:
    with pytest.raises(ContractError, match=r"must be a firstlight\.contract\.Plane"):
        _resolve(_declarer(input_planes=[("types", 4)]))
    with pytest.raises(ContractError, match="neutral = 1"):
        _resolve(_declarer(input_planes=[Plane("ids", neutral=1, index=True)]))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": ""}, "its name must be a string"),
        ({"name": 3}, "its name must be a string"),
        ({"name": "use_cache"}, "is an argument of the decoder call already; rename it"),
        ({"name": "inputs_embeds"}, "is an argument of the decoder call already; rename it"),
        ({"shape": (4, -1)}, r"has shape \(4, -1\); it must be a tuple of positive ints"),
        ({"shape": 4}, "has shape 4; it must be a tuple of positive ints"),
        ({"dtype": "int64"}, "has dtype 'int64'; it must be a firstlight.contract.PlaneDType"),
        ({"neutral": "0"}, "has neutral = '0'; it must be a number"),
        ({"dtype": PlaneDType.INT64, "neutral": 0.5}, "has neutral = 0.5, which int64 cannot hold"),
        ({"dtype": PlaneDType.INT32, "neutral": 2**40}, "which int32 cannot hold"),
        ({"dtype": PlaneDType.INT64, "neutral": float("inf")}, "has neutral = inf, which int64"),
    ],
    ids=str,
)
def test_a_plane_of_wrong_fields_is_refused(fields: dict[str, Any], message: str) -> None:
    declarer = _declarer(input_planes=[Plane(**{"name": "types", **fields})])
    with pytest.raises(ContractError, match=message):
        _resolve(declarer)


def test_the_largest_and_smallest_integers_may_be_neutral() -> None:
    planes = [Plane("a", dtype=PlaneDType.INT32, neutral=n) for n in (-(2**31), 2**31 - 1, 3.0)]
    for plane in planes:
        assert _resolve(_declarer(input_planes=[plane])).planes == (plane,)


def test_planes_that_are_no_list_are_refused() -> None:
    with pytest.raises(ContractError, match=r"input_planes = Plane\(.* must be a list"):
        _resolve(_declarer(input_planes=Plane("types")))


def test_a_declaration_that_raises_is_a_contract_error() -> None:
    def raises(self: object) -> int:
        raise ZeroDivisionError("no heads")

    declarer = _declarer(input_embeds_hidden_size=property(raises))()
    message = "Model.input_embeds_hidden_size cannot be read: ZeroDivisionError: no heads"
    with pytest.raises(ContractError, match=message):
        _resolve(declarer)


def test_planes_do_not_widen_the_row() -> None:
    contract = _resolve(_declarer(input_planes=[Plane("per_layer", shape=(4, 256))]))
    assert contract.input_embeds_hidden_size == HIDDEN


# -- the stream's width is another quantity ----------------------------------------------------


def test_the_stream_width_is_not_derived_from_the_row() -> None:
    contract = _resolve(_declarer(input_embeds_hidden_size=4 * HIDDEN))
    assert contract.hc_hidden_size is None


def test_the_row_is_not_derived_from_the_stream_width() -> None:
    contract = _resolve(_declarer(hc_hidden_size=4 * HIDDEN))
    assert contract.hc_hidden_size == 4 * HIDDEN
    assert contract.input_embeds_hidden_size == HIDDEN
    assert not contract.declared


def test_both_may_be_declared_with_different_values() -> None:
    contract = _resolve(_declarer(hc_hidden_size=4 * HIDDEN, input_embeds_hidden_size=3 * HIDDEN))
    assert (contract.hc_hidden_size, contract.input_embeds_hidden_size) == (4 * HIDDEN, 3 * HIDDEN)


def test_two_different_stream_widths_are_refused() -> None:
    with pytest.raises(ContractError, match=r"hc_hidden_size = 128, but Other declares 256"):
        _resolve(_declarer(hc_hidden_size=128), _declarer("Other", hc_hidden_size=256))


# -- what was really written -------------------------------------------------------------------


def test_a_width_that_was_written_as_declared_passes() -> None:
    contract = _resolve(_declarer(input_embeds_hidden_size=128))
    contract.check_written(128, writer="Model", rows="media rows")


@pytest.mark.parametrize(
    ("attributes", "source", "remedy"),
    [
        ({}, "the default config gives", "declare `input_embeds_hidden_size = 96` on ToyModel"),
        (
            {"input_embeds_hidden_size": 128},
            "Model declares",
            "declare `input_embeds_hidden_size = 96` on Model, or make ToyModel write 128",
        ),
        (
            {"input_segments": [("a", 64), ("b", 64)]},
            "Model declares",
            "make the input_segments of Model add up to 96, or make ToyModel write 128",
        ),
    ],
)
def test_another_width_names_both_numbers_and_where_to_declare_what(
    attributes: dict[str, Any], source: str, remedy: str
) -> None:
    contract = _resolve(_declarer(**attributes))
    declared = contract.input_embeds_hidden_size
    with pytest.raises(ProbeError) as caught:
        contract.check_written(96, writer="ToyModel", rows="media rows")
    message = str(caught.value)
    assert f"media rows of 96 columns, but {source}" in message
    assert f"= {declared}" in message
    assert remedy in message


# -- properties --------------------------------------------------------------------------------

_PARTS = st.lists(
    st.tuples(st.text("abc.01", min_size=1, max_size=8), st.integers(1, 10_000)),
    min_size=1,
    max_size=12,
    unique_by=lambda part: part[0],
)


@given(parts=_PARTS)
def test_segments_tile_the_row(parts: list[tuple[str, int]]) -> None:
    contract = _resolve(_declarer(input_segments=parts))
    assert [(s.name, s.width) for s in contract.segments] == parts
    columns = [c for s in contract.segments for c in (s.start, s.end)]
    assert columns[0] == 0
    assert columns[-1] == contract.input_embeds_hidden_size == sum(width for _, width in parts)
    assert columns[1:-1:2] == columns[2::2]


@given(parts=_PARTS, width=st.integers(1, 100_000))
def test_a_width_beside_segments_must_be_their_sum(
    parts: list[tuple[str, int]], width: int
) -> None:
    model = _declarer(input_segments=parts, input_embeds_hidden_size=width)
    if width == sum(part for _, part in parts):
        assert _resolve(model).input_embeds_hidden_size == width
    else:
        with pytest.raises(ContractError, match="add up to"):
            _resolve(model)
