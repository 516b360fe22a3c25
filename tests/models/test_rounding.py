"""A model in 8 or 4 bits is transformers' model with rounded weights, and says what was rounded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from firstlight import LLM, SamplingParams
from firstlight.errors import ConfigError
from firstlight.models.fuse import FuseReport, NativeLinear
from firstlight.models.fuse.rounding import head_format, round_layer
from firstlight.native import Kernels, WeightFormat
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, reference, tiny_llm, user
from tests.native.conftest import kernels, library  # noqa: F401
from tests.native.readers import rounded_int8
from tests.oracle import reference_model
from tests.pictures import picture

PROMPTS: dict[str, list[Part]] = {
    "llama": ["How many circles are there?"],
    "qwen3_vl": [picture(48, 32, seed=1), "What is it?"],
}


def rounded_int4(weight: Tensor) -> Tensor:
    """What 4 bits should hold: sixteen even steps from the least to the largest of 32 values."""
    blocks = weight.float().numpy().reshape(weight.shape[0], -1, 32)
    least = blocks.min(2, keepdims=True).astype(np.float16).astype(np.float32)
    step = ((blocks.max(2, keepdims=True) - least) / np.float32(15)).astype(np.float16)
    wide = step.astype(np.float32)
    codes = np.rint((blocks - least) / np.where(wide > 0, wide, 1)).clip(0, 15) * (wide > 0)
    return torch.from_numpy((codes * wide + least).astype(np.float32).reshape(weight.shape))


ROUNDED: dict[str, Callable[[Tensor], Tensor]] = {"int8": rounded_int8, "int4": rounded_int4}


def rounded_checkpoint(folder: Path, out: Path, quantization: str) -> Path:
    """A copy of a float32 checkpoint whose decoder layers and LM head were rounded."""
    shutil.copytree(folder, out)
    model = reference_model(folder)
    weights: dict[str, Tensor] = dict(model.state_dict())
    decoder = model.get_decoder()
    inside = {id(m) for m in decoder.layers.modules() if type(m) is nn.Linear}
    for name, module in model.named_modules():
        if id(module) in inside:
            key, round_ = f"{name}.weight", ROUNDED[quantization]
        elif module is model.get_output_embeddings():
            key, round_ = f"{name}.weight", rounded_int8
        else:
            continue
        weights[key] = round_(weights[key])
    model.save_pretrained(out, state_dict=weights)
    return out


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("family", PROMPTS)
def test_a_quantised_engine_answers_like_transformers_with_rounded_weights(
    family: str, quantization: str, tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    folder = tiny_checkpoint(family)
    rounded = rounded_checkpoint(folder, tmp_path / "rounded", quantization)
    llm = tiny_llm(folder, quantization=quantization, dynamic_quantization="off")
    expected = reference(llm, rounded, PROMPTS[family], tokens=12)
    unrounded = reference(llm, folder, PROMPTS[family], tokens=1)
    assert (expected.logits - unrounded.logits).abs().max() > 1e-3, "rounding shows"
    params = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=20)
    answer = llm.chat(user(*PROMPTS[family]), params)
    compared = expected.decided()
    assert compared >= 6
    assert answer.token_ids[:compared] == expected.greedy_ids[:compared]
    assert answer.logprobs is not None
    wanted = expected.logits.log_softmax(-1)
    for token, found in answer.logprobs[0].top:
        assert found == pytest.approx(float(wanted[token]), abs=1e-4)


def rounded_inputs(x: Tensor) -> Tensor:
    """What 8 bits should hold of rows: 127 steps each way to the largest of 32 values."""
    blocks = x.reshape(*x.shape[:-1], -1, 32)
    step = blocks.abs().amax(-1, keepdim=True) / 127
    return ((blocks / torch.where(step > 0, step, 1.0)).round() * step).reshape(x.shape)


def rounding_its_inputs(path: Path) -> Any:
    """transformers' model whose decoder layers and LM head get rounded inputs."""
    model = reference_model(path)
    inside = [m for m in model.get_decoder().layers.modules() if type(m) is nn.Linear]
    for module in [*inside, model.get_output_embeddings()]:
        module.register_forward_pre_hook(lambda _, given: (rounded_inputs(given[0]),))
    return model


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize("family", PROMPTS)
def test_with_dynamic_quantization_it_is_transformers_with_rounded_inputs_too(
    family: str,
    quantization: str,
    tiny_checkpoint: TinyCheckpoint,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tiny_checkpoint(family)
    rounded = rounded_checkpoint(folder, tmp_path / "rounded", quantization)
    llm = tiny_llm(folder, quantization=quantization, dynamic_quantization="on")
    # Of inputs that lie in the middle of two steps, either is right: these prompts have none.
    parts: list[Part] = ["What is it?"] if family == "llama" else [picture(64, 32, seed=2), "What?"]
    plain = reference(llm, rounded, parts, tokens=1).logits.log_softmax(-1)
    monkeypatch.setattr("tests.oracle.reference_model", rounding_its_inputs)
    wanted = reference(llm, rounded, parts, tokens=1).logits.log_softmax(-1)
    assert (wanted - plain).abs().max() > 1e-2, "rounding shows"
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=20)
    answer = llm.chat(user(*parts), params)
    assert answer.logprobs is not None
    for token, found in answer.logprobs[0].top:
        assert found == pytest.approx(float(wanted[token]), abs=1e-4)
    assert llm.inspect()["kernels"]["dynamic_quantization"]


@pytest.mark.usefixtures("kernels")
def test_every_multiplication_with_codes_rounds_its_inputs_or_none_does(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    for asked, wanted in (("on", True), ("off", False)):
        llm = tiny_llm(
            tiny_checkpoint("qwen3_vl"), quantization="int4", dynamic_quantization=asked, eager=True
        )
        modules = llm.parts.model.adapter.model.modules()
        linears = [m for m in modules if isinstance(m, NativeLinear)]
        coded = [m for m in linears if WeightFormat(m.format).has_codes]
        assert {m.rounds_rows for m in coded} == {wanted}
        assert not any(m.rounds_rows for m in linears if m not in coded)
        told = llm.inspect()
        assert told["fused"]["rounded_inputs"] == (len(coded) if wanted else 0)
        assert told["kernels"]["dynamic_quantization"] is wanted
        assert ("their inputs in int8" in llm.parts.native.sentence()) is wanted


@pytest.mark.usefixtures("kernels")
def test_a_report_counts_what_was_rounded(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint("llama"), quantization="int4", eager=True)
    described = llm.inspect()
    assert described["kernels"]["quantization"] == "int4"
    # Seven linear layers in each of three layers.
    assert described["fused"]["stored"] == {"int4": 21}


@pytest.mark.parametrize("quantization", ["int8", "int4"])
@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"native": "off"}, "native = off"), ({"fuse": False}, "fuse = false")],
)
def test_weights_of_few_bits_without_the_kernels_are_refused(
    quantization: str, settings: dict[str, Any], reason: str, tiny_checkpoint: TinyCheckpoint
) -> None:
    with pytest.raises(ConfigError, match=f"quantization = '{quantization}'.*{reason}.*'none'"):
        LLM(tiny_checkpoint("llama"), dtype="float32", quantization=quantization, **settings)


def test_a_layer_whose_inputs_are_no_multiple_of_32_stays_and_is_named(kernels: Kernels) -> None:  # noqa: F811
    narrow, wide = nn.Linear(48, 16), nn.Linear(64, 16)
    before = [linear.weight.detach().clone() for linear in (narrow, wide)]
    report = FuseReport()
    layer = nn.ModuleDict({"narrow": narrow, "wide": wide})
    round_layer(layer, kernels, WeightFormat.INT4, report)
    assert torch.equal(narrow.weight, before[0])
    assert torch.equal(wide.weight, rounded_int4(before[1]))
    assert report.left == {"narrow as INT4": "its 48 inputs are no multiple of 32"}
    assert report.stored == {"int4": 1}


@pytest.mark.usefixtures("kernels")
def test_a_model_of_another_width_is_served_with_the_layers_that_fit(
    tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    folder = narrow_llama(tiny_checkpoint("llama"), tmp_path / "narrow")
    llm = tiny_llm(folder, quantization="int4", eager=True)
    fused = llm.inspect()["fused"]
    # Only the MLP's way down has 64 inputs.
    assert fused["stored"] == {"int4": 3}
    assert fused["left"]["self_attn.q_proj as INT4"] == "its 48 inputs are no multiple of 32"
    expected = reference(llm, folder_with_rounded_down(folder, tmp_path / "r"), PROMPTS["llama"], 8)
    answer = llm.chat(user(*PROMPTS["llama"]), SamplingParams(temperature=0, max_tokens=8))
    n = expected.decided()
    assert answer.token_ids[:n] == expected.greedy_ids[:n]


def narrow_llama(folder: Path, out: Path) -> Path:
    """A random llama of width 48 with the tokenizer of another."""
    from transformers import LlamaConfig, LlamaForCausalLM

    shutil.copytree(folder, out)
    config = LlamaConfig.from_pretrained(
        folder, hidden_size=48, intermediate_size=64, num_attention_heads=3, num_key_value_heads=1
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(out)
    return out


def folder_with_rounded_down(folder: Path, out: Path) -> Path:
    """A copy in which only ``down_proj`` was rounded; its LM head has 48 inputs and is not."""
    shutil.copytree(folder, out)
    model = reference_model(folder)
    weights = dict(model.state_dict())
    for key in [name for name in weights if "down_proj" in name]:
        weights[key] = rounded_int4(weights[key])
    model.save_pretrained(out, state_dict=weights)
    return out


def test_a_head_has_8_bits_unless_4_lose_nothing(kernels: Kernels) -> None:  # noqa: F811
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(64, 96, generator=generator)
    exact = rounded_int4(weight)
    assert head_format(weight, kernels, WeightFormat.INT4) is WeightFormat.INT8
    assert head_format(exact, kernels, WeightFormat.INT4) is WeightFormat.INT4
    assert head_format(exact, kernels, WeightFormat.INT8) is WeightFormat.INT8


@pytest.mark.usefixtures("kernels")
def test_no_decoder_layer_keeps_its_old_weights(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint("qwen3_vl"), quantization="int4", eager=True)
    layers = llm.parts.model.adapter.decoder.layers
    matrices = [p for p in layers.parameters() if p.ndim == 2]
    packed = [m for m in layers.modules() if isinstance(m, NativeLinear)]
    assert not matrices
    assert {m.format for m in packed} == {int(WeightFormat.INT4)}
    config = json.loads((llm.parts.model.path / "config.json").read_text())["text_config"]
    assert len(packed) == 4 * config["num_hidden_layers"] + 1  # the last has its keys apart
