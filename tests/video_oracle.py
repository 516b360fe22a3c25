"""transformers' answer to prompts with videos, and a numpy re-statement of its video processors.

These need torchvision; the re-statement was compared with them where it is installed
(``recorded_video_rules.json`` holds what they said). It shares nothing with firstlight.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from tests.oracle import Reference, reference_model

PROCESSORS = {
    "qwen2_vl": ("qwen2_vl", "Qwen2VLProcessor"),
    "qwen2_5_vl": ("qwen2_5_vl", "Qwen2_5_VLProcessor"),
    "qwen3_vl": ("qwen3_vl", "Qwen3VLProcessor"),
    "qwen3_vl_moe": ("qwen3_vl", "Qwen3VLProcessor"),
}


@dataclass(frozen=True)
class Clip:
    """Frames of one size, taken ``fps`` times a second."""

    frames: tuple[Image.Image, ...]
    fps: float = 2.0


Part = str | Image.Image | Clip


def patches(
    frames: Sequence[Image.Image], settings: dict[str, Any], size: tuple[int, int]
) -> tuple[NDArray[np.float32], list[int]]:
    """``[t * h * w, C * group * patch * patch]``, and t, h, w, of frames in a size.

    Patch by patch, in the order of the tower: time, then cells of ``merge x merge`` patches.
    """
    patch, merge, group = (
        settings[name] for name in ("patch_size", "merge_size", "temporal_patch_size")
    )
    height, width = size
    mean = np.array(settings["image_mean"])
    std = np.array(settings["image_std"])
    pixels = [
        (np.asarray(f.resize((width, height), Image.Resampling.BICUBIC)) / 255.0 - mean) / std
        for f in frames
    ]
    while len(pixels) % group:
        pixels.append(pixels[-1])
    t, h, w = len(pixels) // group, height // patch, width // patch
    rows = []
    for time in range(t):
        for top in range(0, h, merge):
            for left in range(0, w, merge):
                for y in range(top, top + merge):
                    for x in range(left, left + merge):
                        cut = np.s_[y * patch : (y + 1) * patch, x * patch : (x + 1) * patch]
                        some = [p[cut] for p in pixels[time * group : (time + 1) * group]]
                        rows.append(np.stack(some).transpose(3, 0, 1, 2).reshape(-1))
    return np.array(rows, dtype=np.float32), [t, h, w]


def frame_size(family: str, clip: Clip, settings: dict[str, Any]) -> tuple[int, int]:
    """Height and width by transformers' own function."""
    width, height = clip.frames[0].size
    n, size = max(len(clip.frames), settings["temporal_patch_size"]), settings["size"]
    factor = settings["patch_size"] * settings["merge_size"]
    limits = {"min_pixels": size["shortest_edge"], "max_pixels": size["longest_edge"]}
    if family.startswith("qwen3"):
        module = import_module("transformers.models.qwen3_vl.video_processing_qwen3_vl")
        h, w = module.smart_resize(n, height, width, factor=factor, **limits)
    else:
        module = import_module("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
        h, w = module.smart_resize(height, width, factor=factor, **limits)
    return int(h), int(w)


class Inputs:
    """What transformers' processor would make of a user turn.

    Args:
        family: a key of ``PROCESSORS``, or that with a suffix such as ``_plain``.
        path: the checkpoint.
    """

    def __init__(self, family: str, path: Path) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer

        self.family = family.removesuffix("_plain")
        self.settings = json.loads((path / "preprocessor_config.json").read_text())
        self.config = json.loads((path / "config.json").read_text())
        self.tokenizer = AutoTokenizer.from_pretrained(path)
        self.images = AutoImageProcessor.from_pretrained(path, backend="pil")
        module, name = PROCESSORS[self.family]
        cls: Any = getattr(import_module(f"transformers.models.{module}.processing_{module}"), name)
        # Building one wants a video processor, which wants torchvision.
        self.processor = cls.__new__(cls)
        merge = SimpleNamespace(
            merge_size=self.settings["merge_size"],
            temporal_patch_size=self.settings["temporal_patch_size"],
        )
        vars(self.processor).update(
            video_processor=merge,
            image_processor=merge,
            video_token="<|video_pad|>",
            image_token="<|image_pad|>",
            vision_start_token="<|vision_start|>",
            vision_end_token="<|vision_end|>",
        )

    def of(self, parts: Sequence[Part]) -> dict[str, Any]:
        """The wrapper forward's inputs for one user turn; ``input_ids`` among them."""
        images = [p for p in parts if isinstance(p, Image.Image)]
        clips = [p for p in parts if isinstance(p, Clip)]
        made: dict[str, Any] = {}
        if images:
            made |= dict(self.images(images=images, return_tensors="pt"))
        if clips:
            made |= self._videos(clips)
        ids = torch.tensor([self._ids(parts, made, clips)])
        types = torch.zeros_like(ids)
        types[ids == self.config["image_token_id"]] = 1
        types[ids == self.config["video_token_id"]] = 2
        return {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "mm_token_type_ids": types.int(),
            **made,
        }

    def _videos(self, clips: Sequence[Clip]) -> dict[str, Any]:
        made = [
            patches(clip.frames, self.settings, frame_size(self.family, clip, self.settings))
            for clip in clips
        ]
        videos: dict[str, Any] = {
            "pixel_values_videos": torch.from_numpy(np.concatenate([p for p, _ in made])),
            "video_grid_thw": torch.tensor([grid for _, grid in made]),
        }
        if self.family == "qwen2_5_vl":
            group = self.settings["temporal_patch_size"]
            videos["second_per_grid_ts"] = torch.tensor([group / clip.fps for clip in clips])
        return videos

    def _ids(self, parts: Sequence[Part], made: dict[str, Any], clips: Sequence[Clip]) -> list[int]:
        content = [
            {"type": "text", "text": p}
            if isinstance(p, str)
            else {"type": "video" if isinstance(p, Clip) else "image"}
            for p in parts
        ]
        text = self.tokenizer.apply_chat_template(
            [{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True
        )
        made = made | {"video_metadata": [_metadata(clip) for clip in clips]}
        n_images = sum(isinstance(p, Image.Image) for p in parts)
        text, _ = self.processor.get_text_with_replacements(
            [text],
            [self.processor.replace_image_token(made, i) for i in range(n_images)],
            [self.processor.replace_video_token(made, i) for i in range(len(clips))],
        )
        ids: list[int] = self.tokenizer(text[0], add_special_tokens=False)["input_ids"]
        return ids


def _metadata(clip: Clip) -> Any:
    from transformers.video_utils import VideoMetadata

    n = len(clip.frames)
    return VideoMetadata(total_num_frames=n, fps=clip.fps, frames_indices=list(range(n)))


def video_generate(path: Path, inputs: dict[str, Any], n: int = 32) -> Reference:
    """Greedy decoding by transformers' own ``generate``."""
    model = reference_model(path)
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
    prompt = inputs["input_ids"][0].tolist()
    return Reference(
        prompt_ids=tuple(prompt),
        logits=scores[0],
        greedy_ids=tuple(out.sequences[0, len(prompt) :].tolist()),
        margins=tuple((best[:, 0] - best[:, 1]).tolist()),
    )
