"""How Qwen's video processors sample and resize, from the settings of a checkpoint.

The rules are those of transformers' ``Qwen2VLVideoProcessor`` and ``Qwen3VLVideoProcessor``, which
cannot be used without torchvision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch

_PIXELS = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")
_EDGES = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}


@dataclass(frozen=True, slots=True, kw_only=True)
class QwenVideoRules:
    """The settings that both families have.

    Attributes:
        fps, num_frames: what is taken of a file if the request says nothing. Without either, two
            frames a second, which is what the models were trained on.
        shortest_edge, longest_edge: least and most pixels; of what, the family says.
        cap_pixels_per_frame: bound the pixels as the models' authors do.
        max_video_tokens: what that bound is computed from.
        do_resize: False leaves frames as they are.
        resample: Pillow's number of the filter, bicubic unless the checkpoint says otherwise.
        pixels: settings about the values of pixels, by transformers' names.
    """

    patch_size: int
    merge_size: int = 2
    temporal_patch_size: int = 2
    min_frames: int = 4
    max_frames: int = 768
    fps: float | None = 2.0
    num_frames: int | None = None
    shortest_edge: int
    longest_edge: int
    cap_pixels_per_frame: bool = False
    max_video_tokens: int
    do_resize: bool = True
    resample: int = 3
    pixels: Mapping[str, object] = field(default_factory=dict)

    DEFAULTS: ClassVar[Mapping[str, Any]] = {}

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Self:
        """The rules of a checkpoint's settings; what they leave out is the family's own.

        Args:
            settings: of its video processor or, where it has none, of its image processor.
        """
        size = settings.get("size") or {}
        given = {
            **{edge: size.get(edge, size.get(name)) for name, edge in _EDGES.items()},
            **{edge: settings[name] for name, edge in _EDGES.items() if settings.get(name)},
            **{name: settings.get(name) for name in _FIELDS},
        }
        known = {name: value for name, value in given.items() if value is not None}
        pixels = {name: settings[name] for name in _PIXELS if settings.get(name) is not None}
        pixels = {**cls.DEFAULTS["pixels"], **pixels}
        return cls(**{**cls.DEFAULTS, **known, "pixels": pixels})

    @property
    def factor(self) -> int:
        """Side of the square of one row in pixels."""
        return self.patch_size * self.merge_size

    @property
    def scale_and_shift(self) -> tuple[list[float], list[float]]:
        """Rescaling and normalising as one factor and one summand a channel."""
        pixels: Mapping[str, Any] = self.pixels
        factor = pixels.get("rescale_factor", 1 / 255) if pixels.get("do_rescale", True) else 1.0
        if not pixels.get("do_normalize", True):
            return [factor] * 3, [0.0] * 3
        pairs = list(zip(pixels["image_mean"], pixels["image_std"], strict=True))
        return [factor / std for _, std in pairs], [-mean / std for mean, std in pairs]


_FIELDS = (
    "patch_size",
    "merge_size",
    "temporal_patch_size",
    "min_frames",
    "max_frames",
    "fps",
    "num_frames",
    "cap_pixels_per_frame",
    "max_video_tokens",
    "do_resize",
    "resample",
)
_CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
_HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen2VideoRules(QwenVideoRules):
    """Qwen2-VL and Qwen2.5-VL: whole groups of frames, pixels limited per frame."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "patch_size": 14,
        "shortest_edge": 128 * 28 * 28,
        "longest_edge": 28 * 28 * 768,
        "max_video_tokens": 128_000,
        "pixels": _CLIP,
    }

    def sample(
        self, total: int, source_fps: float, fps: float | None, num_frames: int | None
    ) -> list[int]:
        """From the first frame on at equal distances, a whole number of groups."""
        group = self.temporal_patch_size
        most = min(self.max_frames, total) // group * group
        fps, num_frames = _chosen(self, fps, num_frames)
        if num_frames is not None:
            n = max(round(min(num_frames, self.max_frames) / group), 1) * group
        else:
            assert fps is not None
            asked = min(max(total / source_fps * fps, self.min_frames), most)
            n = max(math.floor(asked / group), 1) * group
        if n > total:  # a group that is not full repeats the last frame
            return list(range(total))
        # float32 steps, as transformers takes them: what is cut off depends on it. Where they add
        # up to less than the whole there is one more, at times to a frame behind the last.
        indices: list[int] = torch.arange(0, total, total / n).int().tolist()
        return [index for index in indices if index < total]

    def frame_size(self, frames: int, height: int, width: int) -> tuple[int, int]:
        """Within the limits for one frame, however many there are."""
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

        if not self.do_resize:
            return height, width
        most = self.longest_edge
        if self.cap_pixels_per_frame:
            budget = int(self.max_video_tokens * self.factor**2 * 0.9)
            share = budget * self.temporal_patch_size // frames
            most = max(min(most, share), int(self.shortest_edge * 1.05))
        h, w = smart_resize(height, width, self.factor, self.shortest_edge, most)
        return h, w


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3VideoRules(QwenVideoRules):
    """Qwen3-VL: any number of frames, pixels limited for all of them together."""

    DEFAULTS: ClassVar[Mapping[str, Any]] = {
        "patch_size": 16,
        "shortest_edge": 128 * 32 * 32,
        "longest_edge": 32 * 32 * 768,
        "max_video_tokens": 768,
        "pixels": _HALF,
    }

    def sample(
        self, total: int, source_fps: float, fps: float | None, num_frames: int | None
    ) -> list[int]:
        """Evenly from the first frame to the last one."""
        fps, num_frames = _chosen(self, fps, num_frames)
        if num_frames is None:
            assert fps is not None
            num_frames = max(int(total / source_fps * fps), self.min_frames)
        n = min(num_frames, self.max_frames, total)
        indices: list[int] = np.linspace(0, total - 1, n).round().astype(int).tolist()
        return indices

    def frame_size(self, frames: int, height: int, width: int) -> tuple[int, int]:
        """The more frames, the smaller each."""
        from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize

        if not self.do_resize:
            return height, width
        most = self.longest_edge
        if self.cap_pixels_per_frame:
            share = min(self.max_video_tokens * self.factor**2, most // frames)
            most = max(share, int(self.shortest_edge * 1.05)) * frames
        h, w = smart_resize(
            frames,
            height,
            width,
            temporal_factor=self.temporal_patch_size,
            factor=self.factor,
            min_pixels=self.shortest_edge,
            max_pixels=most,
        )
        return h, w


def _chosen(
    rules: QwenVideoRules, fps: float | None, num_frames: int | None
) -> tuple[float | None, int | None]:
    """The request's rate or number, or the checkpoint's own; exactly one of them."""
    if num_frames is not None:
        return None, num_frames
    if fps is not None:
        return fps, None
    if rules.num_frames is not None:
        return None, rules.num_frames
    return rules.fps, None
