"""Tiny text decoders."""

from __future__ import annotations

from typing import Any

from tools.tiny import vocabulary as vocab
from tools.tiny.family import EXPERTS, Family, text_config

_WINDOW = {"sliding_window": 8}
_HEAD = {"head_dim": 16}

DECODERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "llama": ("Llama", {}, 1),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}, 0),
    "qwen3": ("Qwen3", _HEAD, 0),
    "mistral": ("Mistral", _HEAD | _WINDOW, 1),
}
"""Name to the classes' prefix, fields and seed: the decoders that everything is tested with."""

MORE_DECODERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "ernie4_5": ("Ernie4_5", _HEAD, 0),
    "exaone4": ("Exaone4", _WINDOW, 0),
    "gemma": ("Gemma", _HEAD, 0),
    "gemma3": ("Gemma3", _HEAD | _WINDOW, 0),
    "glm4": ("Glm4", _HEAD, 0),
    "hunyuan": ("HunYuanDenseV1", _HEAD, 0),
    "ministral": ("Ministral", _HEAD | _WINDOW, 0),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "sliding_window": None}, 0),
    "olmo2": ("Olmo2", {}, 0),
    "olmo3": ("Olmo3", _WINDOW, 0),
    "phi3": ("Phi3", {}, 0),
    "qwen3_moe": ("Qwen3Moe", _HEAD | EXPERTS, 0),
    "seed_oss": ("SeedOss", _HEAD, 0),
    "smollm3": ("SmolLM3", {}, 0),
    "starcoder2": ("Starcoder2", {"sliding_window": None}, 0),
}
"""The same: further ones that need nothing special, tested for parity only."""


def decoder(name: str) -> Family:
    """The family of a text decoder."""
    prefix, fields, seed = (DECODERS | MORE_DECODERS)[name]
    config = "Gemma3TextConfig" if prefix == "Gemma3" else f"{prefix}Config"
    values = text_config(vocab.TEXT, **fields)
    return Family(f"{prefix}ForCausalLM", config, vocab.TEXT, values, seed=seed)
