"""Loading: what is found in a folder, and one sentence for what is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from firstlight.errors import ConfigError, ModelLoadError, UnknownArchitectureError
from firstlight.models import dtypes
from firstlight.models.dtypes import choose_dtype
from firstlight.models.loading import load_model
from tests.conftest import TinyCheckpoint
from tests.models.dense import load

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


def failure(path: Path | str, **options: Any) -> str:
    with pytest.raises(ModelLoadError) as caught:
        load_model(path, dtype="float32", **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_folder_gives_everything_that_serving_needs(tiny_checkpoint: TinyCheckpoint) -> None:
    folder = tiny_checkpoint("qwen3_vl")
    loaded = load(folder)
    assert loaded.name == folder.name
    assert loaded.path == folder
    assert loaded.max_context == 1024
    assert loaded.chat_template is not None
    assert "<|image_pad|>" in loaded.chat_template
    assert loaded.image_processor is not None
    assert loaded.image_processor.name == "Qwen2VLImageProcessorPil"
    assert loaded.adapter.placeholder == "<|image_pad|>"
    assert [f.head_dim for f in loaded.layers] == [16, 16, 16]


def test_a_string_path_works_like_a_path(tiny_checkpoint: TinyCheckpoint) -> None:
    loaded = load_model(str(tiny_checkpoint("llama")), dtype="float32")
    assert loaded.name == "llama"
    assert loaded.image_processor is None


def test_a_sliding_window_is_a_fact_of_its_layers(tiny_checkpoint: TinyCheckpoint) -> None:
    assert [f.window for f in load(tiny_checkpoint("mistral")).layers] == [8, 8, 8]


def test_no_weight_wants_a_gradient(tiny_checkpoint: TinyCheckpoint) -> None:
    model = load(tiny_checkpoint("qwen3")).adapter.model
    assert not any(p.requires_grad for p in model.parameters())
    assert not model.training


def test_end_tokens_come_from_all_three_places(copy: Copy) -> None:
    folder = copy("llama")
    edit(folder / "config.json", eos_token_id=7)
    edit(folder / "generation_config.json", eos_token_id=[5, 6])
    tokenizer_eos = 354  # <|im_end|>
    assert load(folder).eos_token_ids == {5, 6, 7, tokenizer_eos}


@pytest.mark.parametrize("name", ["chat_template.json", "processor_config.json"])
def test_an_older_checkpoints_chat_template_is_found(name: str, copy: Copy) -> None:
    folder = copy("qwen2_vl")
    (folder / "chat_template.jinja").unlink()
    (folder / name).write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert load(folder).chat_template == "{{ messages }}"


def test_without_a_chat_template_only_chat_is_refused(copy: Copy) -> None:
    folder = copy("llama")
    (folder / "chat_template.jinja").unlink()
    loaded = load(folder)
    assert loaded.chat_template is None
    with pytest.raises(ModelLoadError, match="llama has no chat template"):
        loaded.require_chat_template()


def test_an_unknown_architecture_is_answered_with_the_known_ones(copy: Copy) -> None:
    folder = copy("llama")
    edit(folder / "config.json", architectures=["NobodyForCausalLM"])
    with pytest.raises(UnknownArchitectureError) as caught:
        load_model(folder)
    for part in ("'NobodyForCausalLM'", "LlamaForCausalLM", "Qwen3VLForConditionalGeneration"):
        assert part in str(caught.value)


def test_a_configuration_without_architecture_is_refused(copy: Copy) -> None:
    folder = copy("llama")
    edit(folder / "config.json", architectures=None)
    assert "names no architecture" in failure(folder)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert failure(tmp_path / "none") == f"there is no model folder {tmp_path / 'none'}"


def test_a_folder_without_configuration_is_named(tmp_path: Path) -> None:
    assert failure(tmp_path) == f"{tmp_path} has no config.json"


def test_a_broken_configuration_is_named(copy: Copy) -> None:
    folder = copy("llama")
    (folder / "config.json").write_text("{")
    assert "config.json cannot be read" in failure(folder)


def test_a_folder_without_weights_is_named(copy: Copy) -> None:
    folder = copy("llama")
    (folder / "model.safetensors").unlink()
    assert f"{folder} has no weights" in failure(folder)


def test_pickled_weights_are_not_loaded(copy: Copy) -> None:
    folder = copy("llama")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pytorch_model.bin is pickled, which is not loaded" in failure(folder)


@pytest.mark.parametrize("keep", [0, 5, 400, -1000], ids=str)
def test_truncated_weights_are_noticed_before_loading(keep: int, copy: Copy) -> None:
    folder = copy("llama")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    message = failure(folder)
    assert "model.safetensors" in message
    assert "bytes" in message


def test_a_missing_shard_is_named(copy: Copy) -> None:
    folder = copy("llama")
    weight_map = {"a": "model.safetensors", "b": "model-2.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    message = failure(folder)
    assert "lacks 1 of the 2 weight files" in message
    assert "model-2.safetensors" in message


def test_a_missing_weight_is_not_left_to_chance(copy: Copy) -> None:
    from safetensors.torch import load_file, save_file

    folder = copy("llama")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    message = failure(folder)
    assert "lacks 1 weights" in message
    assert "model.layers.1.mlp.up_proj.weight" in message


def test_a_vision_model_without_processor_files_is_refused(copy: Copy) -> None:
    folder = copy("llava")
    for name in ("preprocessor_config.json", "processor_config.json"):
        (folder / name).unlink()
    message = failure(folder)
    assert "has no image processor" in message
    assert "preprocessor_config.json" in message


def test_a_processor_that_does_not_suit_the_tower_is_noticed_at_load(copy: Copy) -> None:
    folder = copy("llava")
    edit(folder / "preprocessor_config.json", crop_size={"height": 64, "width": 64})
    message = failure(folder)
    assert "does not take what the checkpoint's image processor makes" in message
    assert "64*64" in message


def test_a_broken_image_processor_file_is_refused(copy: Copy) -> None:
    folder = copy("llava")
    (folder / "preprocessor_config.json").write_text("{")
    assert "preprocessor_config.json cannot be read" in failure(folder)


def test_a_folder_without_tokenizer_is_refused(copy: Copy) -> None:
    folder = copy("llama")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    assert "has no tokenizer: none of tokenizer.json" in failure(folder)


@pytest.mark.parametrize(
    ("rope", "reason"),
    [
        ({"rope_type": "dynamic", "factor": 2.0}, "'dynamic', which reads positions on the host"),
        (
            {
                "rope_type": "longrope",
                "short_factor": [1.0] * 8,
                "long_factor": [2.0] * 8,
                "original_max_position_embeddings": 512,
            },
            "'longrope', which takes its frequencies from the longest request",
        ),
    ],
    ids=["dynamic", "longrope"],
)
def test_rope_that_depends_on_the_batch_is_refused(
    rope: dict[str, Any], reason: str, copy: Copy
) -> None:
    folder = copy("llama")
    edit(folder / "config.json", rope_parameters={"rope_theta": 10000.0} | rope)
    assert reason in failure(folder)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("chunked_attention", "layers of type 'chunked_attention'"),
        ("linear_attention", "recurrent layers (1 of 3, of type 'linear_attention')"),
    ],
)
def test_layers_of_an_unserved_kind_are_refused(kind: str, reason: str, copy: Copy) -> None:
    folder = copy("qwen2")
    edit(folder / "config.json", layer_types=["full_attention", kind, "full_attention"])
    assert reason in failure(folder)


def test_a_file_that_is_no_gguf_is_refused(copy: Copy) -> None:
    assert "is a file, but not a GGUF file" in failure(copy("llama") / "config.json")


def test_a_hub_name_without_a_network_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    message = failure("nobody/at-all")
    assert "'nobody/at-all' is no local folder" in message
    assert "hub cannot be reached" in message


@pytest.mark.parametrize("name", ["llama", "./llama", "a/b/c", "/nowhere/llama", "x/y.gguf"])
def test_what_cannot_be_a_hub_name_is_a_missing_folder(name: str) -> None:
    assert failure(name) == f"there is no model folder {Path(name)}"


@pytest.mark.parametrize(
    ("amx", "expected"), [(True, torch.bfloat16), (False, torch.float32)], ids=["with", "without"]
)
def test_auto_is_bfloat16_only_where_the_cpu_multiplies_it(
    amx: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    assert choose_dtype("auto", torch.device("cpu")) == expected


def test_a_named_dtype_is_the_weights_dtype(tiny_checkpoint: TinyCheckpoint) -> None:
    loaded = load_model(tiny_checkpoint("llama"), dtype="bfloat16")
    assert loaded.adapter.dtype == torch.bfloat16


def test_an_unknown_dtype_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"'int3'; accepted: auto, float32"):
        dtypes.choose_dtype("int3", torch.device("cpu"))
