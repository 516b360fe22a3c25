"""GGUF files: converted once, equal to the weights that they were made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from firstlight.errors import ModelLoadError
from firstlight.models import gguf as converter
from firstlight.models.loading import load_model
from tests.conftest import TinyCheckpoint
from tests.models.dense import compose, generate, load

NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    """llama.cpp's name of a llama weight."""
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    layer, _, rest = name.removeprefix("model.layers.").partition(".")
    return f"blk.{layer}.{NAMES[rest.removesuffix('.weight')]}.weight"


def rotary_order(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama.cpp interleaves the two halves of each rotary head."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weight.shape))


Kinds = Mapping[str, gguf.GGMLQuantizationType]


def write_gguf(folder: Path, path: Path, kinds: Kinds = MappingProxyType({})) -> Path:
    """The tiny llama of ``folder`` as one GGUF file.

    Args:
        kinds: how weights are stored whose name has this in it; the others in float32.
    """
    from safetensors.numpy import load_file

    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(config["vocab_size"])
    add_tokenizer(writer, folder, config)
    for name, weight in load_file(folder / "model.safetensors").items():
        if "q_proj" in name or "k_proj" in name:
            heads = "num_attention_heads" if "q_proj" in name else "num_key_value_heads"
            weight = rotary_order(weight, config[heads])
        kind = next((k for part, k in kinds.items() if part in name), None)
        data = weight if kind is None else gguf.quants.quantize(weight, kind)
        writer.add_tensor(gguf_name(name), data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    core = json.loads((folder / "tokenizer.json").read_text())
    special = {t["id"]: t["content"] for t in core["added_tokens"]}
    words = {i: t for t, i in core["model"]["vocab"].items()} | special
    tokens = [words.get(i, f"<unused{i}>") for i in range(config["vocab_size"])]
    merges = [m if isinstance(m, str) else " ".join(m) for m in core["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if i in special or i not in words else 1 for i in range(len(tokens))])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(config["eos_token_id"])
    writer.add_chat_template((folder / "chat_template.jinja").read_text())


@pytest.fixture(scope="module")
def source(tiny_checkpoint: TinyCheckpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GGUF file of the tiny llama."""
    return write_gguf(tiny_checkpoint("llama"), tmp_path_factory.mktemp("gguf") / "tiny.gguf")


def test_a_gguf_file_answers_like_the_checkpoint_it_was_made_of(
    source: Path, tiny_checkpoint: TinyCheckpoint, tmp_path: Path
) -> None:
    original = load(tiny_checkpoint("llama"))
    loaded = load_model(source, dtype="float32", cache_dir=tmp_path)
    assert loaded.name == "tiny"
    assert loaded.max_context == 1024
    assert loaded.chat_template == original.chat_template
    assert loaded.eos_token_ids >= original.eos_token_ids
    ours, theirs = (compose(m, ["What is this?"]) for m in (loaded, original))
    assert ours.ids == theirs.ids
    (logits, ids), (expected, expected_ids) = (
        generate(m, p, 8) for m, p in ((loaded, ours), (original, theirs))
    )
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert ids == expected_ids


def test_the_second_load_converts_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = converter.converted_folder(source, tmp_path)
    monkeypatch.setattr(converter, "_dequantise", lambda *_: pytest.fail("converted again"))
    assert converter.converted_folder(source, tmp_path) == first


def test_weights_are_kept_in_the_type_that_is_served_and_are_what_a_cast_at_load_gives(
    source: Path, tmp_path: Path
) -> None:
    exact = converter.converted_folder(source, tmp_path)
    served = converter.converted_folder(source, tmp_path, torch.bfloat16)
    assert served != exact
    expected, found = (load_file(folder / "model.safetensors") for folder in (exact, served))
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        assert weight.dtype is torch.bfloat16
        assert torch.equal(weight, expected[name].bfloat16()), name


def test_a_model_that_keeps_weights_in_float32_is_kept_in_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LlamaForCausalLM, "_keep_in_fp32_modules", ["norm"])
    folder = converter.converted_folder(source, tmp_path, torch.bfloat16)
    weights = load_file(folder / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}


def test_another_content_under_the_same_name_is_another_entry(source: Path, tmp_path: Path) -> None:
    folder = converter.converted_folder(source, tmp_path)
    changed = tmp_path / source.name
    content = bytearray(source.read_bytes())
    content[-1] ^= 1
    changed.write_bytes(content)
    assert converter.converted_folder(changed, tmp_path) != folder


def test_a_failed_conversion_leaves_nothing_behind(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, out: Path, dtype: torch.dtype) -> None:
        (out / "half").write_text("")
        raise ModelLoadError("no")

    monkeypatch.setattr(converter, "_dequantise", fail)
    with pytest.raises(ModelLoadError, match="no"):
        converter.converted_folder(source, tmp_path)
    assert list((tmp_path / "gguf").iterdir()) == []


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04 not gguf")
    with pytest.raises(ModelLoadError, match="is not a GGUF file, whatever its name says"):
        load_model(path, cache_dir=tmp_path)


def test_a_truncated_file_is_refused(source: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(source.read_bytes()[:-4000])
    with pytest.raises(ModelLoadError, match="cannot be converted"):
        load_model(path, cache_dir=tmp_path)


def test_a_gguf_file_needs_a_cache_folder(source: Path) -> None:
    with pytest.raises(ModelLoadError, match="a cache folder is needed"):
        load_model(source)
