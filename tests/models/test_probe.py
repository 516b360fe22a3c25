"""A declaration of widths is checked against what the model really writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from firstlight.contract import Plane, PlaneDType
from firstlight.errors import ContractError, MediaError, ModelLoadError, ProbeError
from firstlight.models.adapter import Artifact
from firstlight.models.loading import LoadedModel, load_model, prepare_adapter
from firstlight.models.probe import neutral_rows, probe_layers
from tests.models.dense import DenseContext, Inputs, artifact_of, compose, generate
from tests.pictures import picture
from tests.toy import (
    HIDDEN,
    MisspeltToy,
    ToyAdapter,
    ToyForCausalLM,
    build_toy,
    toy_registry,
)

Toy = Callable[..., LoadedModel]


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Builds and loads a toy; keyword arguments as for :func:`tests.toy.build_toy`."""

    def get(
        *,
        adapter: type[ToyAdapter] = ToyAdapter,
        model_class: Any = ToyForCausalLM,
        **options: Any,
    ) -> LoadedModel:
        folder = build_toy(tmp_path / "toy", model_class=model_class, **options)
        return load_model(folder, dtype="float32", registry=toy_registry(model_class, adapter))

    return get


@pytest.mark.parametrize("width", [2 * HIDDEN, HIDDEN + HIDDEN // 2], ids=["2x", "3/2x"])
def test_a_model_of_its_own_width_loads_and_answers(width: int, toy: Toy) -> None:
    loaded = toy(row_width=width, declared_width=width)
    contract = loaded.adapter.contract
    assert contract.input_embeds_hidden_size == width
    assert contract.hidden_size == HIDDEN
    assert contract.declared_by == "ToyForCausalLM"
    prompt = compose_toy(loaded, 1)
    logits, ids = generate(loaded, prompt, 4)
    other, _ = generate(loaded, compose_toy(loaded, 2), 1)
    assert logits.shape == (loaded.adapter.vocab_size,)
    assert ids
    assert (logits - other).abs().max() > 1e-3


def compose_toy(loaded: LoadedModel, seed: int) -> Any:
    return compose(loaded, [picture(32, 32, seed=seed), "What is it?"])


def test_a_wide_model_equals_its_own_forward(toy: Toy) -> None:
    loaded = toy()
    adapter, model = loaded.adapter, loaded.adapter.model
    prompt = compose_toy(loaded, 1)
    ours, _ = generate(loaded, prompt, 1)
    with torch.no_grad():
        rows = model.embed_tokens(torch.tensor([prompt.ids]))
        media = model.get_image_features(prompt.artifacts[0].tensors["pixel_values"]).pooler_output
        rows[0, torch.tensor(prompt.ids) == adapter.media_token_id] = media[0]
        where = torch.arange(len(prompt.ids))[None]
        hidden = model.model(rows, where, firstlight=DenseContext()).last_hidden_state
        torch.testing.assert_close(ours, model.lm_head(hidden)[0, -1])


def test_a_wrong_declaration_stops_the_load_with_both_numbers(toy: Toy) -> None:
    with pytest.raises(ProbeError) as caught:
        toy(row_width=64, declared_width=48)
    message = str(caught.value)
    for part in ("ToyForCausalLM", "64", "48", "`input_embeds_hidden_size = 64`"):
        assert part in message


def test_no_declaration_means_hidden_size_and_a_wider_model_is_refused(toy: Toy) -> None:
    with pytest.raises(ProbeError, match=r"64 columns.*input_embeds_hidden_size = 32"):
        toy(row_width=64, declared_width=None)


def test_no_declaration_serves_a_model_of_plain_width(toy: Toy) -> None:
    contract = toy(row_width=HIDDEN, declared_width=None).adapter.contract
    assert not contract.declared
    assert contract.input_embeds_hidden_size == HIDDEN


def test_a_misspelt_declaration_is_refused_with_the_right_name(toy: Toy) -> None:
    with pytest.raises(ContractError, match=r"inputs_embeds_hidden_size.*did you mean 'input_"):
        toy(model_class=MisspeltToy)


class WrongSegments(ToyAdapter):
    input_segments = (("tokens", HIDDEN), ("extra", HIDDEN - 1))
    input_embeds_hidden_size = 2 * HIDDEN


def test_a_declaration_that_cannot_be_read_is_not_taken_for_none(toy: Toy) -> None:
    class Typo(ToyAdapter):
        @property
        def input_segments(self) -> list[tuple[str, int]]:
            return [("tokens", self.text_config.hiden_size)]

    with pytest.raises(ContractError, match=r"Typo.input_segments cannot be read: .*hiden_size"):
        toy(adapter=Typo)


@pytest.mark.parametrize("name", ["get_input_embeddings", "get_output_embeddings"])
def test_a_model_without_a_module_that_its_adapter_calls_is_refused_by_name(
    name: str, toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = toy().adapter.model
    monkeypatch.setattr(ToyForCausalLM, name, lambda self: None)
    with pytest.raises(ModelLoadError, match=rf"ToyForCausalLM.{name}\(\) gives no module"):
        prepare_adapter(model, None, ToyAdapter)


def test_a_configuration_without_a_size_is_refused_with_what_is_needed(toy: Toy) -> None:
    class Sizeless(ToyAdapter):
        @property
        def num_layers(self) -> int:
            return int(self.config.n_layer)

    with pytest.raises(ModelLoadError, match=r"Sizeless needs: .*n_layer.*num_hidden_layers"):
        toy(adapter=Sizeless)


@pytest.mark.parametrize("error", [KeyError("types"), TypeError("unexpected keyword")])
def test_a_body_that_fails_is_named_with_what_it_was_given(error: Exception, toy: Toy) -> None:
    class Fails(ToyAdapter):
        def body(self) -> Any:
            def call(inputs: Any) -> Tensor:
                raise error

            return call

    with pytest.raises(ModelLoadError, match=r"the body of ToyForCausalLM fails on 2 rows of 64"):
        toy(adapter=Fails)


def test_segments_that_do_not_add_up_are_refused(toy: Toy) -> None:
    with pytest.raises(ContractError, match="add up to 63"):
        toy(adapter=WrongSegments)


class NamedSegments(ToyAdapter):
    input_segments = (("tokens", HIDDEN), ("extra", HIDDEN))


def test_segments_name_the_columns_that_the_model_declares(toy: Toy) -> None:
    contract = toy(adapter=NamedSegments).adapter.contract
    assert [(s.name, s.start, s.width) for s in contract.segments] == [
        ("tokens", 0, HIDDEN),
        ("extra", HIDDEN, HIDDEN),
    ]


class NarrowMedia(ToyAdapter):
    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """Rows of the first segment only, which text may write but media may not."""
        return [rows[:, :HIDDEN] for rows in super().encode(artifacts)]


def test_media_rows_of_another_width_are_refused(toy: Toy) -> None:
    with pytest.raises(ProbeError, match="media rows of 32 columns"):
        toy(adapter=NarrowMedia)


class HalfMedia(ToyAdapter):
    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        return [rows.half() for rows in super().encode(artifacts)]


class HalfText(ToyAdapter):
    def text_rows(self, ids: Tensor) -> Tensor:
        return super().text_rows(ids).half()


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (HalfMedia, r"media rows of torch\.float16, but .* torch\.float32; .*encode of HalfMedia"),
        (HalfText, r"text rows of torch\.float16, but .* torch\.float32; .*text_rows of HalfText"),
    ],
)
def test_rows_of_another_dtype_are_refused_with_both_named(
    adapter: type[ToyAdapter], message: str, toy: Toy
) -> None:
    with pytest.raises(ProbeError, match=message):
        toy(adapter=adapter)


class NarrowText(NamedSegments):
    def text_rows(self, ids: Tensor) -> Tensor:
        """Exactly the first segment."""
        return super().text_rows(ids)[:, :HIDDEN]


def test_text_rows_may_fill_the_first_segment_only(toy: Toy) -> None:
    assert toy(adapter=NarrowText).adapter.contract.input_embeds_hidden_size == 2 * HIDDEN


class WithPlane(ToyAdapter):
    input_planes = (Plane("token_types", dtype=PlaneDType.INT64, index=True),)

    def planes(self, ids: Tensor) -> Mapping[str, Tensor]:
        """1 where the media token stands."""
        return {"token_types": (ids == self.media_token_id).long()}


def test_a_plane_reaches_the_decoder_by_its_name(toy: Toy) -> None:
    adapter = toy(adapter=WithPlane).adapter
    seen: list[Tensor] = []

    class Spy(nn.Module):
        def forward(self, token_types: Tensor, **kwargs: Any) -> Any:
            seen.append(token_types)
            return adapter.model.model(**kwargs)

    body = adapter.body()
    body.decoder = Spy()  # type: ignore[attr-defined]
    rows = neutral_rows(adapter, 3, None)
    types = adapter.planes(torch.tensor([0, adapter.media_token_id or 0, 0]))
    with torch.no_grad():
        body(Inputs(rows.embeds, rows.positions, types, DenseContext()))
    assert seen[0].tolist() == [[0, 1, 0]]


@pytest.mark.parametrize(
    ("name", "dtype", "message"),
    [
        ("kind", torch.int64, r"gives 'kind', which is not declared.*input_planes has types"),
        ("types", torch.bool, r"gives 'types' as \(2,\) torch.bool for 2 tokens; declared are"),
    ],
)
def test_planes_that_nothing_declares_or_of_another_type_are_refused(
    name: str, dtype: torch.dtype, message: str, toy: Toy
) -> None:
    class Typed(ToyAdapter):
        input_planes = (Plane("types", dtype=PlaneDType.INT64),)

        def planes(self, ids: Tensor) -> Mapping[str, Tensor]:
            return {name: torch.zeros(len(ids), dtype=dtype)}

    with pytest.raises(ProbeError, match=message):
        toy(adapter=Typed)


class ShortText(ToyAdapter):
    def text_rows(self, ids: Tensor) -> Tensor:
        return super().text_rows(ids)[1:]


class FailingText(ToyAdapter):
    def text_rows(self, ids: Tensor) -> Tensor:
        raise TypeError("no ids")


class NoText(ToyAdapter):
    def text_rows(self, ids: Tensor) -> Any:
        return None


class MistypedText(ToyAdapter):
    def text_rows(self, ids: Tensor) -> Any:
        return self.model.no_such(ids)


class NoPlanes(ToyAdapter):
    def planes(self, ids: Tensor) -> Any:
        return [ids]


class NoLogits(ToyAdapter):
    def logits(self, hidden: Tensor) -> Any:
        return None


class FailingPlanes(ToyAdapter):
    def planes(self, ids: Tensor) -> Mapping[str, Tensor]:
        raise KeyError("types")


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        (ShortText, "ShortText.text_rows gives 1 rows for 2 tokens"),
        (FailingText, "FailingText.text_rows fails on 2 token ids: TypeError: no ids"),
        (NoText, "NoText.text_rows gives a NoneType, not a tensor"),
        (NoPlanes, "NoPlanes.planes gives a list, not a mapping"),
        (MistypedText, "MistypedText.text_rows fails on 2 token ids: AttributeError: .*no_such"),
        (NoLogits, "NoLogits.logits gives a NoneType, not a tensor"),
        (FailingPlanes, "FailingPlanes.planes fails on 2 token ids: KeyError: 'types'"),
    ],
)
def test_text_rows_and_planes_that_do_not_suit_the_ids_are_refused(
    adapter: type[ToyAdapter], message: str, toy: Toy
) -> None:
    with pytest.raises(ProbeError, match=message):
        toy(adapter=adapter)


def test_neutral_planes_have_the_declared_dtype_and_value(toy: Toy) -> None:
    planes = neutral_rows(toy(adapter=WithPlane).adapter, 3, None).planes
    assert planes["token_types"].tolist() == [0, 0, 0]
    assert planes["token_types"].dtype == torch.int64


def test_layer_facts_come_from_what_each_layer_asks(toy: Toy) -> None:
    facts = toy().layers
    assert len(facts) == 2
    assert (facts[0].heads, facts[0].kv_heads, facts[0].head_dim) == (2, 1, 16)
    assert (facts[0].window, facts[0].scale) == (None, 0.25)


def test_a_layer_that_bypasses_the_hook_is_named(toy: Toy) -> None:
    adapter = toy().adapter
    adapter.model.model.layers[1].self_attn = Bypass()
    with pytest.raises(ModelLoadError, match=r"layer 1 of ToyForCausalLM .* \(1 of 2 layers\)"):
        probe_layers(adapter)


class Bypass(nn.Module):
    """An attention layer of its own making."""

    def forward(self, hidden_states: Tensor, **kwargs: Any) -> tuple[Tensor, None]:
        return hidden_states, None


class MissingRows(ToyAdapter):
    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """One row short, as a tower that drops a blank tile."""
        return [rows[1:] for rows in super().encode(artifacts)]


def test_an_image_with_fewer_rows_than_places_is_that_images_error(toy: Toy) -> None:
    loaded = toy(adapter=MissingRows)
    with pytest.raises(MediaError, match=r"the image into \(15, 64\).*\(16, 64\)"):
        loaded.adapter.media_rows([artifact_of(loaded, picture(32, 32))])
