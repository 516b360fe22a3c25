"""What a family that takes videos has beside what it has for images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from firstlight.media.artifact import IMAGE, VIDEO
from firstlight.models.adapter import Artifact
from firstlight.models.adapters.media import MediaAdapter


class VideoAdapter(MediaAdapter):
    """Base of families with images and videos, each with its own media token.

    A family says how many rows a video fills (:meth:`video_rows`), what stands for it in the prompt
    (:meth:`video_text`, :meth:`expand_video`), how images and videos are encoded, and its rules for
    frames (:meth:`video_rules`).
    """

    @property
    def video_token_id(self) -> int:
        """``config.video_token_id``."""
        return int(self.config.video_token_id)

    def rows(self, artifact: Artifact) -> int:
        """By modality."""
        if artifact.modality == VIDEO:
            return self.video_rows(artifact.tensors)
        return self.image_rows(artifact.tensors)

    def video_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Rows that a video will fill, from its processor tensors; the device is not asked."""
        raise NotImplementedError

    def expand(self, artifact: Artifact) -> list[int]:
        """By modality."""
        return (
            self.expand_video(artifact) if artifact.modality == VIDEO else super().expand(artifact)
        )

    def expand_video(self, artifact: Artifact) -> list[int]:
        """As :meth:`expand`, for the video token; here nothing stands between the rows."""
        return [self.video_token_id] * self.video_rows(artifact.tensors)

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """All images in one tower call, all videos in another."""
        rows: list[Tensor] = [torch.empty(0)] * len(artifacts)
        for modality, encode in ((IMAGE, self.encode_images), (VIDEO, self.encode_videos)):
            places = [i for i, a in enumerate(artifacts) if a.modality == modality]
            if places:
                for i, part in zip(places, encode([artifacts[i] for i in places]), strict=True):
                    rows[i] = part
        return rows

    def encode_images(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """At least one image to one ``[rows, W]`` each."""
        raise NotImplementedError

    def encode_videos(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """At least one video to one ``[rows, W]`` each."""
        raise NotImplementedError
