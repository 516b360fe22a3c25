"""Fusing swaps a decoder's modules for equal ones, and leaves alone what is not equal."""

from __future__ import annotations

import pytest
import torch
from tools.tiny_checkpoints import PREFIX_LM_FAMILIES, TEXT_FAMILIES, VISION_FAMILIES
from torch import Tensor, nn

from firstlight.models.fuse import FuseReport, Kit, PackedLinear, fuse_decoder, fuse_model
from firstlight.models.fuse.attention import HeadNorm
from firstlight.models.fuse.linear import can_pack
from firstlight.models.loading import LoadedModel, load_model
from tests.conftest import TinyCheckpoint
from tests.models.dense import compose, generate
from tests.pictures import picture

# Gemma 3 stands for layers with norms behind attention and MLP, and a rope for each type of layer.
FAMILIES = (*TEXT_FAMILIES, "gemma3", *VISION_FAMILIES, *PREFIX_LM_FAMILIES)


def fused(model: LoadedModel) -> FuseReport:
    report = FuseReport()
    fuse_decoder(model.adapter.decoder, model.adapter.position_rank, report, Kit())
    return report


def loaded(path: TinyCheckpoint, family: str, dtype: str = "float32") -> LoadedModel:
    return load_model(str(path(family)), dtype=dtype)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_attention_layer_is_fused_and_the_logits_stay(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    model = loaded(tiny_checkpoint, family)
    image = [picture(48, 32, seed=1)] if model.adapter.multimodal else []
    prompt = compose(model, [*image, "What is it?"])
    before, _ = generate(model, prompt, 4)
    report = fused(model)
    after, _ = generate(model, prompt, 4)
    assert report.left == {}
    attention = [n for n in report.swapped if n.endswith("Attention")]
    assert [report.swapped[n] for n in attention] == [model.adapter.num_layers]
    torch.testing.assert_close(after, before, atol=2e-5, rtol=1e-4)


def test_a_norm_of_another_kind_leaves_its_layer_alone(tiny_checkpoint: TinyCheckpoint) -> None:
    class OnePlusNorm(nn.Module):
        """Gemma's RMSNorm, whose weight is an offset from one."""

        def __init__(self, dim: int) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((dim,), 0.3))
            self.variance_epsilon = 1e-6

        def forward(self, x: Tensor) -> Tensor:
            scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
            return x * scale * (1 + self.weight)

    model = loaded(tiny_checkpoint, "qwen3")
    decoder = model.adapter.decoder
    first = decoder.layers[0].self_attn
    first.q_norm = OnePlusNorm(first.head_dim)
    report = fused(model)
    assert decoder.layers[0].self_attn is first
    assert report.swapped["Qwen3Attention"] == model.adapter.num_layers - 1
    assert "outputs differ by" in report.left["Qwen3Attention"]


def test_a_layer_that_cannot_be_called_alone_stays_with_the_reason(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    class Odd(nn.Module):
        def __init__(self, mlp: nn.Module) -> None:
            super().__init__()
            for name, child in mlp.named_children():
                setattr(self, name, child)

        def forward(self, x: Tensor, scale: Tensor) -> Tensor:
            return x * scale

    model = loaded(tiny_checkpoint, "llama")
    decoder = model.adapter.decoder
    decoder.layers[1].mlp = Odd(decoder.layers[1].mlp)
    report = fused(model)
    assert isinstance(decoder.layers[1].mlp, Odd)
    assert "TypeError" in report.left["Odd"]


def test_a_norm_of_gemmas_kind_is_told_from_one_that_only_looks_like_it(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    class PlainNorm(nn.Module):
        """Named like Gemma's, but its weight is the factor itself."""

        def __init__(self, weight: nn.Parameter) -> None:
            super().__init__()
            self.weight, self.eps = weight, 1e-6

        def forward(self, x: Tensor) -> Tensor:
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight

    model = loaded(tiny_checkpoint, "gemma3")
    decoder = model.adapter.decoder
    first = decoder.layers[0].self_attn
    first.q_norm = PlainNorm(first.q_norm.weight)
    report = fused(model)
    assert decoder.layers[0].self_attn is first
    assert report.swapped["Gemma3Attention"] == model.adapter.num_layers - 1
    assert "outputs differ by" in report.left["Gemma3Attention"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_norms_of_gemmas_kind_round_where_the_models_do(
    dtype: torch.dtype, tiny_checkpoint: TinyCheckpoint
) -> None:
    attention = loaded(tiny_checkpoint, "gemma3").adapter.decoder.layers[0].self_attn.to(dtype)
    x = torch.randn(5, 6, attention.head_dim).to(dtype)
    with torch.no_grad():
        want = torch.cat([attention.q_norm(x[:, :4]), attention.k_norm(x[:, 4:])], dim=1)
        assert torch.equal(HeadNorm.of(attention, 4, 2)(x), want)


def test_windows_are_taken_over_from_what_the_layer_asks_for(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    model = loaded(tiny_checkpoint, "mistral")
    decoder = model.adapter.decoder
    fused(model)
    assert [layer.self_attn.layer.window for layer in decoder.layers] == [
        decoder.config.sliding_window
    ] * len(decoder.layers)


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_joined_layers_give_the_columns_of_each(rows: int, bias: bool, dtype: torch.dtype) -> None:
    layers = [nn.Linear(32, n, bias=bias, dtype=dtype) for n in (16, 48)]
    x = torch.randn(2, rows, 32).to(dtype)
    with torch.no_grad():
        want = torch.cat([layer(x) for layer in layers], dim=-1)
        torch.testing.assert_close(PackedLinear(layers)(x), want)


@pytest.mark.skipif(
    not can_pack(torch.zeros(1, dtype=torch.bfloat16)), reason="this CPU does not pack bfloat16"
)
def test_bfloat16_layers_left_over_are_packed_with_the_same_bits(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    model = loaded(tiny_checkpoint, "qwen3_vl_moe", "bfloat16")
    o_proj = model.adapter.decoder.layers[0].self_attn.o_proj
    x = torch.randn(3, o_proj.in_features).bfloat16()
    with torch.no_grad():
        want = o_proj(x)
        fused(model)
        got = model.adapter.decoder.layers[0].self_attn.out(x)
    assert torch.equal(got, want)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_last_layer_is_computed_for_one_row_per_request(
    family: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    report = fuse_model(loaded(tiny_checkpoint, family).adapter)
    assert report.one_row_per_request
    assert report.left == {}


def test_a_stack_added_after_the_last_layer_keeps_that_layer_whole(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    model = loaded(tiny_checkpoint, "qwen3_vl")
    decoder = model.adapter.decoder
    stacks = len(model.adapter.contract.segments) - 1
    del decoder.layers[stacks:]
    last = decoder.layers[-1]
    report = fuse_model(model.adapter)
    assert not report.one_row_per_request
    assert decoder.layers[-1] is last
    assert any("the last one" in name for name in report.left)


def test_the_head_is_packed_and_the_embedding_stays(tiny_checkpoint: TinyCheckpoint) -> None:
    model = loaded(tiny_checkpoint, "qwen3_vl")
    adapter = model.adapter
    hidden = torch.randn(6, adapter.hidden_size)
    with torch.no_grad():
        logits, rows = adapter.logits(hidden), adapter.text_rows(torch.tensor([3]))
        report = fuse_model(adapter)
        torch.testing.assert_close(adapter.logits(hidden), logits)
        assert torch.equal(adapter.text_rows(torch.tensor([3])), rows)
    assert report.swapped["LM head"] == 1
