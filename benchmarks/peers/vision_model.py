"""A random Qwen3-VL of about 0.62 billion parameters: real sizes, no knowledge.

Its speed is that of a trained model of these sizes. The decoder's shapes are those of Qwen3-0.6B
with fewer layers; the tower is about a fifth of the whole, with three DeepStack taps.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from tools.tiny import vocabulary
from tools.tiny.build import randomise
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

VOCABULARY: Final = 151_936
CONTEXT: Final = 4096
PATCH: Final = 16

_MEAN_STD: Final = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
_PIXELS: Final = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
_VOCABULARY: Final = replace(
    vocabulary.QWEN_VL,
    # The names under which processors of peers ask for these tokens.
    extra={
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
    },
)


def vision_config() -> Qwen3VLConfig:
    """The configuration; the head covers more ids than the tokenizer, as in trained models."""
    ids = vocabulary.QWEN_VL.id_of
    text = {
        "vocab_size": VOCABULARY,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "bos_token_id": ids("<|endoftext|>"),
        "eos_token_id": ids("<|im_end|>"),
        "pad_token_id": ids("<|endoftext|>"),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1_000_000.0,
            "mrope_section": [24, 20, 20],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": 18,
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_heads": 12,
        "patch_size": PATCH,
        "out_hidden_size": 1024,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [4, 8, 12],
    }
    return Qwen3VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def build_vision_model(folder: Path, *, seed: int = 11) -> None:
    """Write the checkpoint in bfloat16 with everything that a peer's processor reads."""
    config = vision_config()
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        model: Any = Qwen3VLForConditionalGeneration(config).eval()
    finally:
        torch.set_default_dtype(previous)
    randomise(model, seed)
    model.generation_config.eos_token_id = config.text_config.eos_token_id
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    vocabulary.build_tokenizer(_VOCABULARY).save_pretrained(folder)
    _write_processor(folder)


def _write_processor(folder: Path) -> None:
    shared = {"patch_size": PATCH, "temporal_patch_size": 2, "merge_size": 2, **_MEAN_STD}
    image = {"image_processor_type": "Qwen2VLImageProcessorFast", "size": _PIXELS, **shared}
    video = {"video_processor_type": "Qwen3VLVideoProcessor", "size": _PIXELS, **shared}
    processor = {"processor_class": "Qwen3VLProcessor"}
    for name, content in (
        ("preprocessor_config.json", image | processor),
        ("video_preprocessor_config.json", video | processor),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
