"""Tiny Gemma 3 with images: rows of one image see each other, most layers have a window."""

from __future__ import annotations

from collections.abc import Callable

from tools.tiny import vocabulary as vocab
from tools.tiny.family import Family, text_config
from tools.tiny.vision import MEAN_STD, tower

ROWS = 16
"""Rows of an image; more than the window, so that both rules act on one pair of rows."""


def _gemma3_vl() -> Family:
    voc = vocab.GEMMA
    text = text_config(
        voc,
        model_type="gemma3_text",
        head_dim=16,
        # Neither the head's own size nor that of hidden_size / heads, so that the scale shows.
        query_pre_attn_scalar=24,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
    )
    vision = tower("siglip_vision_model", vision_use_head=False, patch_size=4)
    return Family(
        "Gemma3ForConditionalGeneration",
        "Gemma3Config",
        voc,
        {
            "text_config": text,
            "vision_config": vision,
            "image_token_index": voc.id_of("<image_soft_token>"),
            "boi_token_index": voc.id_of("<start_of_image>"),
            "eoi_token_index": voc.id_of("<end_of_image>"),
            # A quarter of the patches: the projector pools squares of four.
            "mm_tokens_per_image": ROWS,
        },
        {"image_processor_type": "Gemma3ImageProcessor", "size": {"height": 32, "width": 32}}
        | MEAN_STD,
        seed=9,
        processor_extras={"image_seq_length": ROWS},
    )


PREFIX_LM: dict[str, Callable[[], Family]] = {"gemma3_vl": _gemma3_vl}
"""Name to builder: the families whose mask is causal but for the rows of an image."""
