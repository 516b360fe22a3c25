"""Tiny vision-language models: a tower, an image processor and the shared decoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.tiny import vocabulary as vocab
from tools.tiny.family import EXPERTS, HIDDEN, Family, text_config

MEAN_STD = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
"""Pixels from -1 to 1."""
_CLIP_NORMS = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def _mrope(theta: float = 10_000.0, **more: Any) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta, "mrope_section": [4, 2, 2]} | more


def _qwen_ids() -> dict[str, int]:
    voc = vocab.QWEN_VL
    return {
        "image_token_id": voc.id_of("<|image_pad|>"),
        "video_token_id": voc.id_of("<|video_pad|>"),
        "vision_start_token_id": voc.id_of("<|vision_start|>"),
        "vision_end_token_id": voc.id_of("<|vision_end|>"),
    }


def _qwen_processor(norms: dict[str, Any]) -> dict[str, Any]:
    return {
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": 8,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 16 * 16, "longest_edge": 16 * 16 * 64},
    } | norms


def _qwen3_vl(deepstack: list[int], seed: int) -> Family:
    text = text_config(vocab.QWEN_VL, head_dim=16, rope_parameters=_mrope(mrope_interleaved=True))
    vision = {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 8,
        "out_hidden_size": HIDDEN,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": deepstack,
    }
    return Family(
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLConfig",
        vocab.QWEN_VL,
        {"text_config": text, "vision_config": vision, **_qwen_ids()},
        _qwen_processor(MEAN_STD),
        seed=seed,
    )


def _qwen3_vl_moe() -> Family:
    base = _qwen3_vl([0, 1], seed=6)
    values = base.values | {"text_config": base.values["text_config"] | EXPERTS}
    return Family(
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3VLMoeConfig",
        vocab.QWEN_VL,
        values,
        base.processor,
        seed=6,
    )


def _qwen2_vl() -> Family:
    vision = {
        "depth": 2,
        "embed_dim": 32,
        "hidden_size": HIDDEN,
        "mlp_ratio": 2,
        "num_heads": 2,
        "patch_size": 8,
    }
    text = text_config(vocab.QWEN_VL, rope_parameters=_mrope())
    return Family(
        "Qwen2VLForConditionalGeneration",
        "Qwen2VLConfig",
        vocab.QWEN_VL,
        {"text_config": text, "vision_config": vision, **_qwen_ids()},
        _qwen_processor(_CLIP_NORMS),
    )


def _qwen2_5_vl() -> Family:
    vision = {
        "depth": 2,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 2,
        "patch_size": 8,
        "out_hidden_size": HIDDEN,
        "window_size": 32,
        "fullatt_block_indexes": [1],
    }
    text = text_config(vocab.QWEN_VL, rope_parameters=_mrope())
    return Family(
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen2_5_VLConfig",
        vocab.QWEN_VL,
        {"text_config": text, "vision_config": vision, **_qwen_ids()},
        _qwen_processor(_CLIP_NORMS),
    )


def tower(model_type: str, **more: Any) -> dict[str, Any]:
    """The shared shape of towers, with ``more`` on top."""
    return {
        "model_type": model_type,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    } | more


def _llava() -> Family:
    voc = vocab.LLAVA
    return Family(
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        voc,
        {
            "text_config": text_config(voc, model_type="llama"),
            "vision_config": tower("clip_vision_model", projection_dim=32),
            "image_token_index": voc.id_of("<image>"),
            "vision_feature_layer": -2,
        },
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 32},
            "crop_size": {"height": 32, "width": 32},
        }
        | _CLIP_NORMS,
        processor_extras={
            "patch_size": 8,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
    )


_PINPOINTS = [[32, 32], [32, 64], [64, 32], [64, 64], [32, 96], [96, 32]]


def _llava_next() -> Family:
    voc = vocab.LLAVA
    return Family(
        "LlavaNextForConditionalGeneration",
        "LlavaNextConfig",
        voc,
        {
            "text_config": text_config(voc, model_type="llama"),
            "vision_config": tower("clip_vision_model", projection_dim=32),
            "image_token_index": voc.id_of("<image>"),
            "image_grid_pinpoints": _PINPOINTS,
        },
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": 32},
            "crop_size": {"height": 32, "width": 32},
            "image_grid_pinpoints": _PINPOINTS,
        }
        | _CLIP_NORMS,
        processor_extras={
            "patch_size": 8,
            "vision_feature_select_strategy": "default",
            "num_additional_image_tokens": 1,
        },
    )


def _llava_onevision() -> Family:
    voc = vocab.ONEVISION
    return Family(
        "LlavaOnevisionForConditionalGeneration",
        "LlavaOnevisionConfig",
        voc,
        {
            "text_config": text_config(voc, model_type="qwen2"),
            "vision_config": tower("siglip_vision_model", vision_use_head=False),
            "image_token_index": voc.id_of("<image>"),
            "video_token_index": voc.id_of("<video>"),
            "image_grid_pinpoints": _PINPOINTS,
            # A low limit, so that the tiny pictures also reach the down-scaling branch.
            "vision_aspect_ratio": "anyres_max_2",
        },
        {
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "size": {"height": 32, "width": 32},
            "image_grid_pinpoints": _PINPOINTS,
        }
        | MEAN_STD,
        processor_extras={
            "num_image_tokens": 16,
            "vision_feature_select_strategy": "full",
            "vision_aspect_ratio": "anyres_max_2",
        },
    )


def _internvl() -> Family:
    voc = vocab.INTERNVL
    vision = tower("internvl_vision", image_size=[32, 32], patch_size=[8, 8])
    return Family(
        "InternVLForConditionalGeneration",
        "InternVLConfig",
        voc,
        {
            "text_config": text_config(voc, model_type="qwen2"),
            "vision_config": vision,
            "image_token_id": voc.id_of("<IMG_CONTEXT>"),
            "image_seq_length": 4,
            "tie_word_embeddings": False,
        },
        {
            "image_processor_type": "GotOcr2ImageProcessor",
            "size": {"height": 32, "width": 32},
            "min_patches": 1,
            "max_patches": 4,
        }
        | MEAN_STD,
        processor_extras={"image_seq_length": 4},
    )


def _idefics(architecture: str, config: str, model_type: str, tied: bool, seed: int) -> Family:
    voc = vocab.IDEFICS
    processor = architecture.replace("ForConditionalGeneration", "ImageProcessor")
    return Family(
        architecture,
        config,
        voc,
        {
            "text_config": text_config(voc, model_type="llama"),
            "vision_config": tower(f"{model_type}_vision"),
            "image_token_id": voc.id_of("<image>"),
            "pad_token_id": voc.id_of("<|im_end|>"),
            "scale_factor": 2,
            "tie_word_embeddings": tied,
        },
        {
            "image_processor_type": processor,
            "size": {"longest_edge": 64},
            "max_image_size": {"longest_edge": 32},
            "do_image_splitting": True,
        }
        | MEAN_STD,
        seed=seed,
        processor_extras={"image_seq_len": 4},
    )


def _mistral3() -> Family:
    voc = vocab.MISTRAL
    text = text_config(voc, model_type="mistral", head_dim=16, sliding_window=None)
    return Family(
        "Mistral3ForConditionalGeneration",
        "Mistral3Config",
        voc,
        {
            "text_config": text,
            "vision_config": tower("pixtral", image_size=64, head_dim=16),
            "image_token_index": voc.id_of("[IMG]"),
            "spatial_merge_size": 2,
            "tie_word_embeddings": False,
        },
        {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": 64},
            "patch_size": 8,
        }
        | _CLIP_NORMS,
        seed=1,
        processor_extras={"patch_size": 8, "spatial_merge_size": 2},
    )


def _pixtral() -> Family:
    """The llava architecture with a Pixtral tower."""
    voc = vocab.MISTRAL
    return Family(
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        voc,
        {
            "text_config": text_config(voc, model_type="mistral", head_dim=16, sliding_window=None),
            "vision_config": tower("pixtral", image_size=64, head_dim=16),
            "image_token_index": voc.id_of("[IMG]"),
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": 64},
            "patch_size": 8,
        }
        | _CLIP_NORMS,
        processor_extras={"patch_size": 8, "spatial_merge_size": 1},
    )


VISION: dict[str, Callable[[], Family]] = {
    "qwen3_vl": lambda: _qwen3_vl([0, 1], seed=3),
    "qwen3_vl_plain": lambda: _qwen3_vl([], seed=0),
    "qwen3_vl_moe": _qwen3_vl_moe,
    "qwen2_vl": _qwen2_vl,
    "qwen2_5_vl": _qwen2_5_vl,
    "llava": _llava,
    "llava_next": _llava_next,
    "llava_onevision": _llava_onevision,
    "internvl": _internvl,
    "idefics3": lambda: _idefics(
        "Idefics3ForConditionalGeneration", "Idefics3Config", "idefics3", False, 0
    ),
    "smolvlm": lambda: _idefics(
        "SmolVLMForConditionalGeneration", "SmolVLMConfig", "smolvlm", True, 2
    ),
    "mistral3": _mistral3,
    "pixtral": _pixtral,
}
"""Name to builder. ``qwen3_vl_plain`` has no DeepStack (k = 0)."""
