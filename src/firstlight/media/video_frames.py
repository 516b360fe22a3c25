"""Decodes frames and resizes each at once, so that large ones never lie side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.colour import WHITE, Colour
from firstlight.media.decode import ImageLimits, decode_image
from firstlight.media.digest import digest_of
from firstlight.media.video import (
    UNKNOWN_FPS,
    DecodedVideo,
    VideoLimits,
    VideoOptions,
    VideoRules,
    frames_digest,
)

_FRAME: Final = "a frame"


class Fitter:
    """Brings the taken frames of one video to the size that the rules give them.

    Args:
        n_frames: frames that are taken.
    """

    def __init__(self, rules: VideoRules, limits: VideoLimits, n_frames: int) -> None:
        self._rules = rules
        self._limits = limits
        self._n = n_frames
        self._first = 0
        self._source: tuple[int, int] | None = None
        self._target = (0, 0)

    @property
    def source_size(self) -> tuple[int, int]:
        """Width and height of the frames as they came, once there was one."""
        assert self._source is not None
        return self._source

    def fit(self, frame: Image.Image, index: int) -> Image.Image:
        """One frame, resized.

        Raises:
            MediaError: the rules refuse its size, the frames would have too many pixels together,
                or it is not as large as those before it.
        """
        if self._source is None:
            self._target = self._sized(frame.size)
            self._source, self._first = frame.size, index
        if frame.size != self._source:
            raise MediaError(
                f"the video's frames must be of one size: frame {self._first} is "
                f"{self._source[0]} x {self._source[1]}, frame {index} is {frame.width} x "
                f"{frame.height}"
            )
        if frame.size == self._target:
            return frame
        return frame.resize(self._target, Image.Resampling(self._rules.resample))

    def _sized(self, size: tuple[int, int]) -> tuple[int, int]:
        width, height = size
        group = self._rules.temporal_patch_size
        try:
            # A group that is not full repeats the last frame.
            new_height, new_width = self._rules.frame_size(max(self._n, group), height, width)
        except ValueError as error:
            raise MediaError(
                f"the model does not accept a video of {self._n} frames of {width} x {height} "
                f"pixels: {error}"
            ) from error
        self._limits.check_pixels(self._n + -self._n % group, new_height, new_width)
        return new_width, new_height


def decode_frames(
    frames: Sequence[bytes | Image.Image],
    rules: VideoRules,
    options: VideoOptions | None = None,
    limits: VideoLimits | None = None,
    digest: str = "",
    background: Colour = WHITE,
) -> DecodedVideo:
    """Decode a list of frames: all of them, up to the rules' limit, or evenly spread ones.

    Args:
        frames: files' bytes or images; images are not changed.
        digest: of the list, where it is known already.
        background: what shows through transparent pixels.

    Raises:
        MediaError: no frames or too many, a broken frame with its number, or what :class:`Fitter`
            refuses.
    """
    options, limits = options or VideoOptions(), limits or VideoLimits()
    total = len(frames)
    limits.check_frames(total)
    fps = UNKNOWN_FPS if options.fps is None else options.fps
    wanted = options.num_frames
    if wanted is None and total > rules.max_frames:
        wanted = rules.max_frames
    indices = range(total) if wanted is None else rules.sample(total, fps, None, wanted)
    digest = digest or frames_digest([digest_of(frame) for frame in frames])
    fitter = Fitter(rules, limits, len(indices))
    fitted = tuple(fitter.fit(_decoded(frames[i], i, limits.image, background), i) for i in indices)
    return DecodedVideo(fitted, fitter.source_size, tuple(indices), total, fps, digest)


def _decoded(
    data: bytes | Image.Image, index: int, limits: ImageLimits, background: Colour
) -> Image.Image:
    try:
        # The frame's own digest is not needed: the list has one.
        return decode_image(data, limits, _FRAME, background).pixels
    except MediaError as error:
        raise MediaError(f"frame {index}: {error}") from error
