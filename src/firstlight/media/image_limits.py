"""What an image may be: checked against its header, before a pixel is decoded."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from firstlight.errors import ConfigError, MediaError

MODEST: Final = 12 * 1024 * 1024
"""Pixels that a file of any size may have: decoders take up to 17 bytes for each."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What an image may be.

    Attributes:
        max_pixels: width times height. A small file can declare a canvas that fills the memory;
            Pillow's own guard only warns up to 179 megapixels.
        max_pixels_per_byte: of the file, for images of more than 12 Mi pixels. What a camera, a
            scanner or a drawing program makes stays far below; a file made to fill the memory of
            whoever decodes it does not. None: no limit.
        max_side_ratio: long side over short side. Processors that scale the short side to a fixed
            number of pixels make a vast image of a line; None leaves it to them.
    """

    max_pixels: int = 64 * 1024 * 1024
    max_pixels_per_byte: int | None = 1000
    max_side_ratio: float | None = 200.0

    def __post_init__(self) -> None:
        if self.max_pixels < 1:
            raise ConfigError(f"max_pixels = {self.max_pixels}; accepted: an int from 1")
        if self.max_pixels_per_byte is not None and self.max_pixels_per_byte < 1:
            raise ConfigError(
                f"max_pixels_per_byte = {self.max_pixels_per_byte}; "
                "accepted: an int from 1, or None"
            )
        if self.max_side_ratio is not None and self.max_side_ratio < 1:
            raise ConfigError(
                f"max_side_ratio = {self.max_side_ratio}; accepted: a number from 1, or None"
            )

    def within(self, side_ratio: float | None) -> ImageLimits:
        """These limits, with a model's own side ratio where that is the lower one."""
        known = [ratio for ratio in (self.max_side_ratio, side_ratio) if ratio is not None]
        return replace(self, max_side_ratio=min(known, default=None))

    def check(self, width: int, height: int, n_bytes: int | None = None) -> None:
        """Raise MediaError, with the size and the limit, for an image that is too large.

        Args:
            n_bytes: of its file, None where there is none.
        """
        if width < 1 or height < 1:
            raise MediaError(f"the image has no pixels: it is {width} x {height}")
        if width * height > self.max_pixels:
            raise MediaError(
                f"the image has {width} x {height} = {width * height} pixels; "
                f"at most {self.max_pixels} are accepted"
            )
        dense = self.max_pixels_per_byte
        if dense and n_bytes is not None and width * height > max(MODEST, dense * n_bytes):
            raise MediaError(
                f"the image has {width} x {height} = {width * height} pixels in {n_bytes} bytes; "
                f"over {MODEST} pixels, at most {dense} a byte are accepted"
            )
        ratio = max(width, height) / min(width, height)
        if self.max_side_ratio is not None and ratio > self.max_side_ratio:
            raise MediaError(
                f"the image is {width} x {height}, a side ratio of {ratio:.1f}; "
                f"at most {self.max_side_ratio:g} is accepted"
            )


DEFAULT_LIMITS: Final = ImageLimits()
