"""Models with a recurrent state are refused with that reason, before an architecture is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firstlight.errors import ModelLoadError, UnknownArchitectureError
from firstlight.models.loading import load_model
from firstlight.models.recurrent import why_folder_recurrent, why_recurrent

# What config.json says of these models' layers; the rest of each configuration is its default.
RECURRENT: list[tuple[str, dict[str, Any], str]] = [
    ("qwen3_next", {"num_hidden_layers": 8, "full_attention_interval": 4}, "6 of 8"),
    ("qwen3_5", {}, "'linear_attention'"),
    ("lfm2", {"num_hidden_layers": 4, "full_attn_idxs": [2]}, "3 of 4, of type 'conv'"),
    ("lfm2_vl", {"text_config": {"model_type": "lfm2", "full_attn_idxs": [2]}}, "'conv'"),
    ("lfm2_moe", {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2}, "1 of 2"),
    ("jamba", {"num_hidden_layers": 8}, "'linear_attention'"),
    ("bamba", {"num_hidden_layers": 4, "attn_layer_indices": [1]}, "3 of 4"),
    ("falcon_h1", {"num_hidden_layers": 3}, "3 of 3, of type 'hybrid'"),
    ("nemotron_h", {"hybrid_override_pattern": "M-M*", "num_hidden_layers": 4}, "2 of 4"),
    ("zamba2", {}, "'hybrid' and 'linear_attention'"),
    ("mamba2", {"num_hidden_layers": 5}, "5 of 5"),
    ("recurrent_gemma", {"num_hidden_layers": 6}, "4 of 6"),
    ("granitemoehybrid", {"num_hidden_layers": 2}, "2 of 2"),
    ("rwkv", {}, "is a recurrent model"),
    ("unheard_of", {"layers_block_type": ["mamba", "attention"]}, "1 of 2, of type 'mamba'"),
    ("nemotron_unheard_of", {"llm_config": {"hybrid_override_pattern": "MM*-"}}, "2 of 4"),
]


def checkpoint(folder: Path, model_type: str, **fields: Any) -> Path:
    content = {"architectures": ["SomeForCausalLM"], "model_type": model_type, **fields}
    (folder / "config.json").write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    ("model_type", "fields", "reason"), RECURRENT, ids=[case[0] for case in RECURRENT]
)
def test_a_recurrent_model_is_refused_for_want_of_state_pools(
    model_type: str, fields: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelLoadError, match="needs state pools, and these are not built") as error:
        load_model(checkpoint(tmp_path, model_type, **fields))
    message = str(error.value)
    assert reason in message
    assert "SomeForCausalLM" in message
    assert "known are" not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("model_type", "fields"),
    [
        ("llama", {}),
        ("gemma3", {}),
        ("unheard_of", {}),
        ("unheard_of", {"layer_types": ["full_attention", "moe"]}),
        ("unheard_of", {"vision_config": {"layer_types": ["conv"]}}),
        ("llama", {"num_hidden_layers": "many"}),
    ],
)
def test_an_unknown_architecture_that_attends_is_just_unknown(
    model_type: str, fields: dict[str, Any], tmp_path: Path
) -> None:
    folder = checkpoint(tmp_path, model_type, **fields)
    assert why_folder_recurrent(folder, "SomeForCausalLM") is None
    if "num_hidden_layers" not in fields:
        with pytest.raises(UnknownArchitectureError):
            load_model(folder)


def test_layers_that_attend_are_no_reason() -> None:
    assert why_recurrent("A", ["full_attention", "sliding_attention"]) is None
    assert why_recurrent("A", ["chunked_attention"]) is None
    assert why_recurrent("A", []) is None
