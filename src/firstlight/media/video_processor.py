"""Frames to patches, as transformers' video processors make them.

Those need torchvision, and image processors know no patch that reaches over several frames. What is
left to do here is little: frames come resized, each pixel is scaled and shifted, and a patch takes
its pixels of ``temporal_patch_size`` frames. It is done in one pass over each frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import uuid4

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from firstlight.errors import MediaError
from firstlight.media.artifact import VIDEO, Artifact
from firstlight.media.identity import fingerprint_of
from firstlight.media.video import DecodedVideo, VideoRules


class VideoProcessor:
    """Makes artifacts of videos; holds no state of any request, so threads may share it.

    Args:
        rules: of the model's video processor.
    """

    def __init__(self, rules: VideoRules) -> None:
        self.rules = rules

    def artifact(self, video: DecodedVideo, key: str = "") -> Artifact:
        """Prepare one video.

        The tensors: ``pixel_values_videos [t * h * w, columns]`` and ``video_grid_thw [1, 3]`` as
        of transformers' video processors; ``second_per_grid_ts`` float32 ``[1]``, seconds from one
        grid row in time to the next; ``timestamps`` float64 ``[t]``, the middle of each in seconds.

        Args:
            key: what the artifact is to be known by.

        Raises:
            MediaError: the frames do not divide into patches.
        """
        group = self.rules.temporal_patch_size
        patches = self._patches(video.frames)
        t, rows, columns, merge = patches.shape[:4]
        tensors = {
            "pixel_values_videos": patches.flatten(0, 4).flatten(1),
            "video_grid_thw": torch.tensor([[t, rows * merge, columns * merge]]),
            "second_per_grid_ts": torch.tensor([group / video.sampled_fps]),
            "timestamps": torch.tensor(video.timestamps(group), dtype=torch.float64),
        }
        return Artifact(tensors, video.size, video.digest, key, VIDEO)

    def fingerprint(self) -> str:
        """Identity of everything but the video that decides the tensors.

        ``sha256:<hex>``; or, for rules that cannot be described, a text that nobody else has.
        """
        try:
            return fingerprint_of({"rules": self.rules})
        except TypeError:
            return f"unique:{uuid4()}"

    def _patches(self, frames: Sequence[Image.Image]) -> Tensor:
        """Float32 ``[t, rows, columns, merge, merge, C, group, patch, patch]``."""
        rules = self.rules
        patch, merge, group = rules.patch_size, rules.merge_size, rules.temporal_patch_size
        width, height = frames[0].size
        cell = patch * merge
        if width % cell or height % cell:
            raise MediaError(
                f"the video's frames are {width} x {height}; the model takes multiples of {cell}"
            )
        rows, columns = height // cell, width // cell
        t = -(-len(frames) // group)
        out = torch.empty(t, rows, columns, merge, merge, 3, group, patch, patch)
        scale, shift = (torch.tensor(v).view(3, 1, 1) for v in rules.scale_and_shift)
        for i in range(t * group):
            # A group that is not full repeats the last frame.
            pixels = torch.from_numpy(np.array(frames[min(i, len(frames) - 1)]))
            values = torch.addcmul(shift, pixels.permute(2, 0, 1).float(), scale)
            cut = values.view(3, rows, merge, patch, columns, merge, patch)
            out[i // group, :, :, :, :, :, i % group] = cut.permute(1, 4, 2, 5, 0, 3, 6)
        return out
