"""The scores behind the LM head are the model's own, or the load says that they are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from firstlight.errors import ModelLoadError, ProbeError
from firstlight.models.adapter import Adapter
from firstlight.models.head import probe_head
from firstlight.models.loading import prepare_adapter

SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "pad_token_id": 0,
}


def adapter_of(name: str, cls: type[Adapter] = Adapter, **fields: Any) -> Adapter:
    config = {"Gemma3": "Gemma3TextConfig"}.get(name, f"{name}Config")
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(
        getattr(transformers, config)(**SIZES, **fields)
    )
    return prepare_adapter(model, None, cls)


def test_a_soft_cap_is_applied() -> None:
    adapter = adapter_of("Gemma3", final_logit_softcapping=5.0)
    plain = adapter_of("Gemma3")
    hidden = torch.randn(3, 32) * 100
    assert plain.logits(hidden).abs().max() > 20
    torch.testing.assert_close(adapter.logits(hidden), 5 * torch.tanh(plain.logits(hidden) / 5))
    probe_head(adapter)
    probe_head(plain)


class Uncapped(Adapter):
    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = self.model.get_output_embeddings()(hidden)
        return scores


@pytest.mark.parametrize(
    ("name", "cls", "fields"),
    [
        ("Gemma3", Uncapped, {"final_logit_softcapping": 30.0}),
        ("Granite", Adapter, {"logits_scaling": 8.0}),
        ("Cohere", Adapter, {"logit_scale": 0.0625}),
    ],
)
def test_scores_that_the_model_changes_and_the_adapter_does_not_are_refused(
    name: str, cls: type[Adapter], fields: dict[str, float]
) -> None:
    message = rf"{cls.__name__}.logits differs from the forward of {name}ForCausalLM by up to"
    with pytest.raises(ProbeError, match=message):
        probe_head(adapter_of(name, cls, **fields))


class Scaled(Adapter):
    def logits(self, hidden: Tensor) -> Tensor:
        scores: Tensor = super().logits(hidden) / self.config.logits_scaling
        return scores


def test_an_adapter_that_scales_as_the_model_does_is_served() -> None:
    adapter = adapter_of("Granite", Scaled, logits_scaling=8.0)
    probe_head(adapter)
    assert "forward" not in vars(adapter.decoder)


def test_where_the_forward_tells_nothing_the_configuration_does() -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("needs pictures")

    scaled, plain = (adapter_of("Granite", logits_scaling=by) for by in (8.0, 1.0))
    scaled.model.forward = plain.model.forward = broken
    probe_head(plain)
    with pytest.raises(ModelLoadError, match=r"GraniteForCausalLM has logits_scaling = 8\.0"):
        probe_head(scaled)


@pytest.mark.parametrize("part", [slice(0, -1), (slice(None), slice(0, -1))], ids=["rows", "ids"])
def test_logits_of_another_shape_are_refused(part: Any) -> None:
    class Short(Adapter):
        def logits(self, hidden: Tensor) -> Tensor:
            return super().logits(hidden)[part]

    with pytest.raises(ProbeError, match=r"Short.logits gives .*\(rows, vocab_size\) = \(3, 48\)"):
        probe_head(adapter_of("Llama", Short))
