"""Damaged and unsuitable checkpoints: one sentence with the folder and what is wrong with it."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import ModelLoadError
from firstlight.models.adapters.qwen_vl import Qwen2VLAdapter
from firstlight.models.gguf import converted_folder
from firstlight.models.loading import load_model, prepare_adapter
from tests.conftest import TinyCheckpoint

Copy = Callable[[str], Path]


@pytest.fixture
def copy(tiny_checkpoint: TinyCheckpoint, tmp_path: Path) -> Copy:
    """``copy(family)`` is a checkpoint that the test may damage."""

    def get(family: str) -> Path:
        return Path(shutil.copytree(tiny_checkpoint(family), tmp_path / family))

    return get


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | changes))


def failure(path: Path, **options: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(path, dtype="float32", **options)
    message = str(caught.value)
    assert "\n" not in message
    assert str(path) in message or "image token" in message
    return message


def test_layers_beyond_the_configuration_are_not_left_out(copy: Copy) -> None:
    folder = copy("llama")
    edit(folder / "config.json", num_hidden_layers=1)
    message = failure(folder)
    assert "18 weights of decoder layers" in message
    assert "model.layers.1.input_layernorm.weight" in message


def test_frequencies_that_older_checkpoints_keep_are_ignored(copy: Copy) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    folder = copy("llama")
    weights = load_file(folder / "model.safetensors")
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    assert len(load_model(folder, dtype="float32").layers) == 3


def test_a_shape_of_its_own_is_named_with_both(copy: Copy) -> None:
    folder = copy("llama")
    edit(folder / "config.json", intermediate_size=64)
    message = failure(folder)
    assert "9 weights of another shape than config.json says" in message
    assert "model.layers.0.mlp.down_proj.weight: (64, 128) instead of (64, 64)" in message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", "64"),
        ("num_attention_heads", 0),
        ("num_hidden_layers", 0),
        ("max_position_embeddings", 0),
        ("max_position_embeddings", -1),
        ("vocab_size", True),
    ],
)
def test_a_size_that_is_none_is_named(field: str, value: object, copy: Copy) -> None:
    folder = copy("llama")
    edit(folder / "config.json", **{field: value})
    assert f"config.json gives {field} = {value!r}; it must be a positive int" in failure(folder)


def test_a_size_of_the_text_part_is_looked_at_too(copy: Copy) -> None:
    folder = copy("qwen3_vl")
    config = json.loads((folder / "config.json").read_text())
    edit(folder / "config.json", text_config=config["text_config"] | {"hidden_size": 0})
    assert "gives hidden_size = 0" in failure(folder)


@pytest.mark.parametrize(
    ("field", "value"), [("hidden_act", "nope"), ("rms_norm_eps", "x"), ("rope_parameters", 3)]
)
def test_what_the_library_cannot_build_is_said_in_its_words(
    field: str, value: object, copy: Copy
) -> None:
    folder = copy("llama")
    edit(folder / "config.json", **{field: value})
    message = failure(folder)
    assert "cannot be loaded: " in message
    assert (field if field != "hidden_act" else "nope") in message


def test_quantised_weights_are_refused_before_anything_is_read(copy: Copy) -> None:
    folder = copy("llama")
    edit(folder / "config.json", quantization_config={"quant_method": "gptq", "bits": 4})
    (folder / "model.safetensors").unlink()
    assert "quantization_config (gptq); quantised weights are not served yet" in failure(folder)


def test_a_damaged_generation_configuration_is_named(copy: Copy) -> None:
    folder = copy("llama")
    (folder / "generation_config.json").write_text("{")
    assert "generation_config.json cannot be read" in failure(folder)


@pytest.mark.parametrize("header", [[], {"a": {"dtype": "F32"}}, {"a": 3}], ids=str)
def test_a_header_without_offsets_is_damaged(header: object, copy: Copy) -> None:
    folder = copy("llama")
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    assert "has a damaged safetensors header" in failure(folder)


def test_an_index_without_files_is_damaged(copy: Copy) -> None:
    folder = copy("llama")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": [1]}))
    assert "has no weight_map" in failure(folder)


def test_damaged_tokenizer_files_are_named_as_such(copy: Copy) -> None:
    folder = copy("llama")
    (folder / "tokenizer.json").write_text('{"model": 3}')
    assert "no usable tokenizer: its files are missing or damaged" in failure(folder)


@pytest.mark.parametrize(
    ("token", "reason"),
    [(100_000, "is 100000, beyond its vocabulary"), (-1, "is -1, beyond its vocabulary")],
)
def test_an_image_token_without_an_embedding_is_refused(
    token: int, reason: str, copy: Copy
) -> None:
    folder = copy("qwen2_vl")
    edit(folder / "config.json", image_token_id=token)
    assert reason in failure(folder)


def test_an_image_token_that_the_tokenizer_lacks_is_refused(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    loaded = load_model(tiny_checkpoint("qwen2_vl"), dtype="float32")
    model = loaded.adapter.model
    model.config.get_text_config().vocab_size += 1
    model.config.image_token_id = token = loaded.adapter.vocab_size - 1
    assert token >= len(loaded.tokenizer)
    with pytest.raises(ModelLoadError, match=f"is {token}, which its tokenizer lacks"):
        prepare_adapter(model, loaded.tokenizer, Qwen2VLAdapter)


def test_a_model_with_pictures_needs_an_image_token(copy: Copy) -> None:
    folder = copy("qwen2_vl")
    edit(folder / "config.json", image_token_id=None)
    with pytest.raises(ModelLoadError):
        load_model(folder, dtype="float32")


def test_four_bytes_are_no_gguf_file(tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(b"GGUF")
    assert "cannot be converted" in failure(path, cache_dir=tmp_path)


def test_a_cache_that_cannot_be_written_is_named_with_its_settings(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.gguf", tmp_path / "cache"
    path.write_bytes(b"GGUF")
    cache.write_text("a file where a folder is needed")
    with pytest.raises(ModelLoadError, match=r"cache.gguf cannot be written .*FIRSTLIGHT_CACHE"):
        converted_folder(path, cache)
