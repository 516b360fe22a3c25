"""The attention function that transformers' layers call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from firstlight.attention import AttentionLayer
from firstlight.errors import ModelLoadError
from firstlight.models.attention_hook import NAME, attention, install
from tests.conftest import TinyCheckpoint
from tests.models.dense import DenseContext, load


class Layer(nn.Module):
    """What the hook reads of an attention layer."""

    layer_idx = 3


def call(**kwargs: Any) -> torch.Tensor:
    q = torch.randn(1, 4, 5, 8)
    k, v = torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 6)
    arguments: dict[str, Any] = {"attention_mask": None, "firstlight": DenseContext()} | kwargs
    return attention(Layer(), q, k, v, **arguments)[0]


def test_heads_and_tokens_come_back_in_the_order_that_layers_expect() -> None:
    assert call().shape == (1, 5, 4, 6)


def test_the_context_gets_layer_scale_and_window() -> None:
    seen: dict[str, Any] = {}

    class Spy:
        def attend(self, layer: AttentionLayer, q: torch.Tensor, *_: Any) -> torch.Tensor:
            seen.update(layer=layer, shape=tuple(q.shape))
            return q

    call(firstlight=Spy(), scaling=0.5, sliding_window=7)
    assert seen == {"layer": AttentionLayer(3, 0.5, 7), "shape": (5, 4, 8)}


def test_without_a_context_the_error_says_what_to_pass() -> None:
    with pytest.raises(ModelLoadError, match=r"without an attention context.*`firstlight="):
        call(firstlight=None)


def test_a_mask_is_refused() -> None:
    with pytest.raises(ModelLoadError, match=r"mask of its own \(1, 1, 5, 5\)"):
        call(attention_mask=torch.zeros(1, 1, 5, 5))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("softcap", 30.0),
        ("s_aux", torch.zeros(4)),
        ("sinks", torch.zeros(4)),
        ("position_bias", torch.zeros(1, 4, 5, 5)),
        ("is_causal", False),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(ModelLoadError, match=repr(name)):
        call(**{name: value})


@pytest.mark.parametrize(("name", "value"), [("softcap", None), ("is_causal", True)])
def test_neutral_values_pass(name: str, value: object) -> None:
    assert call(**{name: value}).shape == (1, 5, 4, 6)


def test_no_mask_function_is_registered_under_the_name() -> None:
    from transformers import AttentionInterface, AttentionMaskInterface

    install(nn.Module())
    assert NAME in AttentionInterface().valid_keys()
    assert NAME not in AttentionMaskInterface().valid_keys()


def test_the_tower_keeps_its_own_attention(tiny_checkpoint: TinyCheckpoint) -> None:
    adapter = load(tiny_checkpoint("qwen3_vl")).adapter
    assert adapter.decoder.config._attn_implementation == NAME
    assert adapter.config.vision_config._attn_implementation == "sdpa"
