"""Bytes to an upright RGB image, safely: the limits hold before a pixel is decoded."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

from PIL import Image

from firstlight.errors import ConfigError, MediaError
from firstlight.media.colour import to_rgb
from firstlight.media.digest import digest_of
from firstlight.media.orientation import upright

# Formats whose decoders are in wide use and start no other program (as EPS does).
FORMATS: Final[tuple[str, ...]] = (
    "PNG",
    "JPEG",
    "WEBP",
    "GIF",
    "BMP",
    "TIFF",
    "AVIF",
    "PPM",
)


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What an image may be.

    Attributes:
        max_pixels: width times height. A small file can declare a canvas that fills the memory;
            Pillow's own guard only warns up to 179 megapixels.
        max_side_ratio: long side over short side; None leaves it to the model's processor.
    """

    max_pixels: int = 64 * 1024 * 1024
    max_side_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.max_pixels < 1:
            raise ConfigError(f"max_pixels = {self.max_pixels}; accepted: an int from 1")
        if self.max_side_ratio is not None and self.max_side_ratio < 1:
            raise ConfigError(
                f"max_side_ratio = {self.max_side_ratio}; accepted: a number from 1, or None"
            )

    def check(self, width: int, height: int) -> None:
        """Raise MediaError, with the size and the limit, for an image that is too large."""
        if width < 1 or height < 1:
            raise MediaError(f"the image has no pixels: it is {width} x {height}")
        if width * height > self.max_pixels:
            raise MediaError(
                f"the image has {width} x {height} = {width * height} pixels; "
                f"at most {self.max_pixels} are accepted"
            )
        ratio = max(width, height) / min(width, height)
        if self.max_side_ratio is not None and ratio > self.max_side_ratio:
            raise MediaError(
                f"the image is {width} x {height}, a side ratio of {ratio:.1f}; "
                f"at most {self.max_side_ratio:g} is accepted"
            )


@dataclass(frozen=True, slots=True, eq=False)
class DecodedImage:
    """An upright RGB image and the identity of what it was decoded from."""

    pixels: Image.Image
    digest: str

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in pixels."""
        return self.pixels.size


def decode_image(
    data: bytes | Image.Image,
    limits: ImageLimits = ImageLimits(),
    digest: str = "",
) -> DecodedImage:
    """Decode one image completely: the first frame, upright, on white, three channels of 8 bits.

    Args:
        data: a file's bytes, or an image, which is not changed.
        digest: its digest, where it is known already.

    Raises:
        MediaError: not an image of an accepted format, over a limit, truncated or corrupt.
    """
    given = isinstance(data, Image.Image)
    image = data if isinstance(data, Image.Image) else _opened(data)
    limits.check(*image.size)
    _load(image, "the image" if given else f"the {image.format} image")
    # Taken after loading: a broken image has no identity.
    digest = digest or digest_of(data)
    pixels = to_rgb(upright(image))
    return DecodedImage(pixels.copy() if pixels is data else pixels, digest)


def _opened(data: bytes) -> Image.Image:
    """The image with its header read; no pixel is decoded yet."""
    if not data:
        raise MediaError("the image is empty: 0 bytes")
    Image.init()
    known = [name for name in FORMATS if name in Image.OPEN]
    try:
        return Image.open(io.BytesIO(data), formats=known)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MediaError(f"the image has too many pixels: {error}") from error
    except Exception as error:  # decoders of damaged headers raise nearly anything
        raise MediaError(
            f"{len(data)} bytes (they begin with {data[:8]!r}) are no image that can be read; "
            f"accepted formats: {', '.join(known)}"
        ) from error


def _load(image: Image.Image, what: str) -> None:
    """Decode every pixel; most damage shows only here."""
    try:
        image.load()
    except Exception as error:  # as above
        reason = str(error) or type(error).__name__
        raise MediaError(f"{what} is truncated or corrupt: {reason}") from error
