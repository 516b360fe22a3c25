"""Random Qwen3-VL checkpoints of chosen sizes, made on the device that will run them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from tools.tiny import vocabulary as vocab
from tools.tiny.build import write_checkpoint
from tools.tiny.families import FAMILIES
from tools.tiny.family import Family

CONTEXT: Final = 8192


@dataclass(frozen=True, slots=True)
class Size:
    """Fields of a Qwen3-VL configuration; ``2b`` has those of the released model of that size.

    Attributes:
        taps: vision layers whose features go into the first decoder layers (DeepStack).
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    vision_hidden: int
    vision_layers: int
    vision_heads: int
    vision_mlp: int
    taps: tuple[int, ...]


SIZES: Final[dict[str, Size]] = {
    "2b": Size(2048, 28, 16, 8, 128, 6144, 151936, 1024, 24, 16, 4096, (5, 11, 17)),
    "mid": Size(1024, 12, 8, 4, 128, 3072, 32768, 512, 8, 8, 2048, (1, 3, 5)),
    "quick": Size(64, 2, 4, 2, 16, 128, 2048, 32, 3, 2, 64, (0, 1)),
}


def build(size: str, folder: Path, *, device: str, dtype: torch.dtype) -> Path:
    """Write the checkpoint of that size and return its folder.

    Weights are drawn on ``device``, in ``dtype``: on a CPU two billion of them would take minutes.
    """
    import transformers

    family = _family(SIZES[size])
    config = getattr(transformers, family.config)(**family.values)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = getattr(transformers, family.architecture)(config).eval()
    finally:
        torch.set_default_dtype(before)
    with torch.no_grad():
        torch.manual_seed(0)
        for parameter in model.parameters():
            # One-dimensional ones are norms and biases, which the modules have set.
            if parameter.dim() > 1:
                parameter.normal_(0, parameter[0].numel() ** -0.5)
    write_checkpoint(model, family, folder)
    return folder


def _family(size: Size) -> Family:
    base = FAMILIES["qwen3_vl"]()
    third = size.head_dim // 8
    text: dict[str, Any] = base.values["text_config"] | {
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.kv_heads,
        "head_dim": size.head_dim,
        "intermediate_size": size.mlp,
        "vocab_size": max(size.vocabulary, vocab.QWEN_VL.size),
        "max_position_embeddings": CONTEXT,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 5e6,
            "mrope_section": [size.head_dim // 2 - 2 * third, third, third],
            "mrope_interleaved": True,
        },
    }
    vision: dict[str, Any] = base.values["vision_config"] | {
        "hidden_size": size.vision_hidden,
        "depth": size.vision_layers,
        "num_heads": size.vision_heads,
        "intermediate_size": size.vision_mlp,
        "patch_size": 16,
        "out_hidden_size": size.hidden,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": list(size.taps),
    }
    processor = (base.processor or {}) | {
        "patch_size": 16,
        "size": {"shortest_edge": 32 * 32, "longest_edge": 32 * 32 * CONTEXT},
    }
    values = base.values | {"text_config": text, "vision_config": vision}
    return replace(base, values=values, processor=processor)
