"""transformers' own answer on the same weights: the reference that firstlight must equal.

It shares nothing with firstlight but the checkpoint folder and, if the caller gives them, the
prompt's ids. One request at a time, fp32, no cache tricks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

_CALL_OPTIONS: Mapping[str, dict[str, Any]] = {
    "internvl": {"crop_to_patches": True},
    "mistral3": {"patch_size": 16},
    "idefics3": {"return_row_col_info": True},
    "smolvlm": {"return_row_col_info": True},
    "gemma3": {"do_pan_and_scan": False},
}
"""What transformers' processors pass to their image processors, for the tiny checkpoints."""

_NOT_MODEL_INPUTS = ("rows", "cols", "num_patches", "batch_num_images", "num_crops")

_TOKEN_TYPES: Mapping[str, str] = {"gemma3": "token_type_ids"}
"""The input by which families whose image rows see each other learn which rows these are."""


@dataclass(frozen=True)
class Reference:
    """What transformers says.

    Attributes:
        prompt_ids: ids of the prompt, media tokens included.
        logits: float32 ``[vocabulary]`` at the prompt's last position.
        greedy_ids: ids of its greedy continuation, an end token included if it came.
        margins: per greedy step, the best score minus the second best.
    """

    prompt_ids: tuple[int, ...]
    logits: Tensor
    greedy_ids: tuple[int, ...]
    margins: tuple[float, ...]

    def decided(self, least: float = 1e-4) -> int:
        """Steps before the first one whose margin is too small to compare ids."""
        for step, margin in enumerate(self.margins):
            if margin < least:
                return step
        return len(self.margins)


@lru_cache(maxsize=2)
def reference_model(path: Path) -> Any:
    """transformers' model of the folder, untouched by firstlight: fp32, sdpa."""
    import transformers

    config = json.loads((path / "config.json").read_text())
    cls = getattr(transformers, config["architectures"][0])
    return cls.from_pretrained(path, dtype=torch.float32, attn_implementation="sdpa").eval()


def model_inputs(
    path: Path, prompt_ids: Sequence[int], images: Sequence[Image.Image]
) -> dict[str, Tensor]:
    """The wrapper forward's inputs: ids, all images processed in one call, token types."""
    from transformers import AutoImageProcessor

    ids = torch.tensor([list(prompt_ids)])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    config = json.loads((path / "config.json").read_text())
    if (types := _TOKEN_TYPES.get(config["model_type"])) is not None:
        inputs[types] = (ids == config["image_token_index"]).int()
    if not images:
        return inputs
    processor = AutoImageProcessor.from_pretrained(path, backend="pil")
    made = processor(
        images=list(images), return_tensors="pt", **_CALL_OPTIONS.get(config["model_type"], {})
    )
    inputs |= {k: v for k, v in made.items() if k not in _NOT_MODEL_INPUTS}
    if "image_grid_thw" in inputs:
        inputs["mm_token_type_ids"] = (ids == config["image_token_id"]).int()
    return inputs


def oracle_generate(
    path: Path, prompt_ids: Sequence[int], images: Sequence[Image.Image] = (), n: int = 32
) -> Reference:
    """Greedy decoding by transformers' own ``generate``.

    Args:
        prompt_ids: the prompt with each image's placeholder already expanded.
        images: in prompt order.
        n: tokens at most.
    """
    model = reference_model(path)
    inputs = model_inputs(path, prompt_ids, images)
    with torch.no_grad():
        out = model.generate(
            **inputs,
            max_new_tokens=n,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    scores = torch.cat(out.logits).float()
    best = scores.topk(2, dim=-1).values
    return Reference(
        prompt_ids=tuple(prompt_ids),
        logits=scores[0],
        greedy_ids=tuple(out.sequences[0, len(prompt_ids) :].tolist()),
        margins=tuple((best[:, 0] - best[:, 1]).tolist()),
    )
