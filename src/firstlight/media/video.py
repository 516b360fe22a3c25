"""A video as frames: which of them a model is shown, in what order, and when each was taken.

A video comes as a list of pictures, which is shown as it is, or as a file, which is sampled. How
many frames are taken and how large they become is a family's rule, :class:`VideoRules`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from PIL import Image

from firstlight.errors import ConfigError, MediaError
from firstlight.media.decode import ImageLimits

UNKNOWN_FPS: Final = 24.0
"""Frames a second of a video that does not say it; what transformers assumes."""

_FRAMES_DOMAIN: Final = b"firstlight-frames-1"


class VideoRules(Protocol):
    """What one checkpoint's video processor decides."""

    @property
    def temporal_patch_size(self) -> int:
        """Frames that become one row of the grid in time."""
        ...

    @property
    def max_frames(self) -> int:
        """Frames that are taken at most."""
        ...

    @property
    def resample(self) -> int:
        """Pillow's number of the filter by which frames are resized."""
        ...

    @property
    def patch_size(self) -> int:
        """Side of a patch in pixels."""
        ...

    @property
    def merge_size(self) -> int:
        """Patches side by side that become one row of the decoder, in either direction."""
        ...

    @property
    def scale_and_shift(self) -> tuple[list[float], list[float]]:
        """Per channel, what a value from 0 to 255 is multiplied by, and what is added then."""
        ...

    def sample(
        self, total: int, source_fps: float, fps: float | None, num_frames: int | None
    ) -> list[int]:
        """Which of ``total`` frames are taken, ascending.

        Args:
            source_fps: frames a second of the source.
            fps: frames to take a second; None for the checkpoint's own rate.
            num_frames: frames to take in all, instead of a rate.
        """
        ...

    def frame_size(self, frames: int, height: int, width: int) -> tuple[int, int]:
        """Height and width that each of ``frames`` frames is resized to. ValueError: refused."""
        ...


@dataclass(frozen=True, slots=True)
class VideoOptions:
    """What a request says about one video.

    Attributes:
        fps: of a list of frames, how many there are a second; of a file, how many to take.
        num_frames: frames to take, spread evenly.
    """

    fps: float | None = None
    num_frames: int | None = None

    def check_file(self) -> None:
        """Raise MediaError for a pair that says two things about a file."""
        if self.fps is not None and self.num_frames is not None:
            raise MediaError("give either fps or num_frames of a video file, not both")


@dataclass(frozen=True, slots=True)
class VideoLimits:
    """What a video may be.

    Attributes:
        image: of one frame.
        source_frames: frames of a list or a file, taken or not: each has to be read or decoded.
        source_pixels: width times height of all frames of a file together: decoding one means to
            decode those before it. 33,000 frames of 1920 x 1080.
        pixels: width times height of all taken frames together, as the model gets them.
    """

    image: ImageLimits = field(default_factory=ImageLimits)
    source_frames: int = 36_000
    source_pixels: int = 1 << 36
    pixels: int = 64 * 1024 * 1024

    def __post_init__(self) -> None:
        for name in ("source_frames", "source_pixels", "pixels"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} = {getattr(self, name)}; accepted: an int from 1")

    def check_frames(self, total: int) -> None:
        """Raise MediaError for a video without frames or with too many."""
        if total < 1:
            raise MediaError("the video has no frames")
        if total > self.source_frames:
            raise MediaError(
                f"the video has {total} frames; at most {self.source_frames} are accepted"
            )

    def check_source(self, total: int, width: int, height: int) -> None:
        """Raise MediaError for a file without frames, or with more than may be decoded."""
        self.check_frames(total)
        if total * width * height > self.source_pixels:
            raise MediaError(
                f"the video's {total} frames of {width} x {height} have {total * width * height} "
                f"pixels to decode; at most {self.source_pixels} are accepted"
            )

    def check_pixels(self, frames: int, height: int, width: int) -> None:
        """Raise MediaError for frames that are too much together, before any is prepared."""
        total = frames * height * width
        if total > self.pixels:
            raise MediaError(
                f"the video's {frames} frames of {width} x {height} have {total} pixels; at most "
                f"{self.pixels} are accepted: give fewer frames, or a lower fps or num_frames"
            )


@dataclass(frozen=True, slots=True, eq=False)
class DecodedVideo:
    """The taken frames of a video.

    Attributes:
        frames: upright RGB images of the size that the rules ask for, at least one.
        size: width and height of every frame of the source, in pixels.
        indices: the place of each in the source, ascending.
        total: frames of the source.
        fps: frames a second of the source.
        digest: identity of the source.
    """

    frames: tuple[Image.Image, ...]
    size: tuple[int, int]
    indices: tuple[int, ...]
    total: int
    fps: float
    digest: str

    @property
    def sampled_fps(self) -> float:
        """Taken frames a second."""
        return len(self.indices) / self.total * self.fps

    def timestamps(self, group: int) -> list[float]:
        """The middle of each group of ``group`` taken frames, in seconds; the last one repeats."""
        padded = [*self.indices, *[self.indices[-1]] * (-len(self.indices) % group)]
        seconds = [index / self.fps for index in padded]
        starts = range(0, len(seconds), group)
        return [(seconds[i] + seconds[i + group - 1]) / 2 for i in starts]


def frames_digest(digests: Sequence[str]) -> str:
    """``sha256:<hex>`` of a list of frames from the digest of each, in order."""
    hashed = hashlib.sha256(_FRAMES_DOMAIN)
    for digest in digests:
        hashed.update(digest.encode() + b"\n")
    return "sha256:" + hashed.hexdigest()
