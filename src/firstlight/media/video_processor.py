"""Frames to patches: transformers' image processor, with the rules of a family's video processor.

transformers' own video processors need torchvision. What they do to a frame is what the image
processor does, but the size is decided for all frames at once, and a patch reaches over
``temporal_patch_size`` frames. So the frames are resized first, the image processor makes patches
of one frame each, and these are put side by side.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.artifact import VIDEO, Artifact
from firstlight.media.identity import fingerprint_of
from firstlight.media.video import DecodedVideo, VideoRules


class VideoProcessor:
    """Makes artifacts of videos; holds no state of any request, so threads may share it.

    Args:
        processor: the model's image processor of transformers, with the PIL backend.
        rules: of the model's video processor.
    """

    def __init__(self, processor: Any, rules: VideoRules) -> None:
        self._processor = processor
        self.rules = rules

    @property
    def name(self) -> str:
        """The image processor's class."""
        return type(self._processor).__name__

    def artifact(self, video: DecodedVideo, key: str = "") -> Artifact:
        """Prepare one video.

        The tensors: ``pixel_values_videos [t * h * w, columns]`` and ``video_grid_thw [1, 3]`` as
        of transformers' video processors; ``second_per_grid_ts`` float32 ``[1]``, seconds from one
        grid row in time to the next; ``timestamps`` float64 ``[t]``, the middle of each in seconds.

        Args:
            key: what the artifact is to be known by.

        Raises:
            MediaError: the processor refuses the frames.
        """
        group = self.rules.temporal_patch_size
        try:
            patches, (h, w) = self._patches(video.frames)
        except Exception as error:  # processors check sizes with whatever exception they like
            reason = " ".join(str(error).split()) or type(error).__name__
            width, height = video.size
            raise MediaError(
                f"{self.name} does not accept the video of {len(video.frames)} frames of {width} x "
                f"{height} pixels: {reason}"
            ) from error
        stacked = _stacked(patches, group)
        tensors = {
            "pixel_values_videos": torch.from_numpy(stacked),
            "video_grid_thw": torch.tensor([[len(stacked) // (h * w), h, w]]),
            "second_per_grid_ts": torch.tensor([group / video.sampled_fps]),
            "timestamps": torch.tensor(video.timestamps(group), dtype=torch.float64),
        }
        return Artifact(tensors, video.size, video.digest, key, VIDEO)

    def fingerprint(self) -> str:
        """Identity of everything but the video that decides the tensors."""
        kind = type(self._processor)
        facts = {
            "transformers": transformers.__version__,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "config": self._processor.to_dict(),
            "rules": self.rules,
        }
        try:
            return fingerprint_of(facts)
        except TypeError:
            return f"unique:{uuid4()}"

    def _patches(
        self, frames: tuple[Image.Image, ...]
    ) -> tuple[NDArray[np.float32], tuple[int, int]]:
        """Patches of each frame ``[n, h * w, C, patch * patch]`` in the tower's order, (h, w)."""
        made = self._processor(
            images=list(frames),
            do_resize=False,
            temporal_patch_size=1,
            return_tensors="np",
            **self.rules.processor_options,
        )
        _, h, w = made["image_grid_thw"][0].tolist()
        values = np.asarray(made["pixel_values"], dtype=np.float32)
        return values.reshape(len(frames), h * w, 3, -1), (h, w)


def _stacked(patches: NDArray[np.float32], group: int) -> NDArray[np.float32]:
    """Patches over ``group`` frames: ``[t * h * w, C * group * patch * patch]``."""
    n, cells, channels, area = patches.shape
    if pad := -n % group:
        patches = np.concatenate([patches, patches[-1:].repeat(pad, axis=0)])
    grouped = patches.reshape(-1, group, cells, channels, area).transpose(0, 2, 3, 1, 4)
    return np.ascontiguousarray(grouped).reshape(-1, channels * group * area)
