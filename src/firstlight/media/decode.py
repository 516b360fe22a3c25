"""Bytes to an upright RGB image, safely: the limits hold before a pixel is decoded."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from PIL import Image, features

from firstlight.errors import ConfigError, MediaError
from firstlight.media.colour import WHITE, Colour, rawmode_of, to_rgb
from firstlight.media.digest import digest_of
from firstlight.media.orientation import orientation_of, upright

_PLUGINS: Final = MappingProxyType(
    {
        "PNG": "PngImagePlugin",
        "JPEG": "JpegImagePlugin",
        "WEBP": "WebPImagePlugin",
        "GIF": "GifImagePlugin",
        "BMP": "BmpImagePlugin",
        "TIFF": "TiffImagePlugin",
        "AVIF": "AvifImagePlugin",
    }
)
"""Formats whose decoders are in wide use and start no other program (as EPS does)."""

_OPTIONAL: Final = ("WEBP", "AVIF")
"""Those for which Pillow may be built without their library."""

MAX_SCANS: Final = 100
"""Scans of a JPEG file; encoders write about ten. Each is a pass over all pixels that may take a
hundred bytes, so a small file with thousands of them would keep a core busy for many minutes."""


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """What an image may be.

    Attributes:
        max_pixels: width times height. A small file can declare a canvas that fills the memory;
            Pillow's own guard only warns up to 179 megapixels.
        max_side_ratio: long side over short side. Processors that scale the short side to a fixed
            number of pixels make a vast image of a line; None leaves it to them.
    """

    max_pixels: int = 64 * 1024 * 1024
    max_side_ratio: float | None = 200.0

    def __post_init__(self) -> None:
        if self.max_pixels < 1:
            raise ConfigError(f"max_pixels = {self.max_pixels}; accepted: an int from 1")
        if self.max_side_ratio is not None and self.max_side_ratio < 1:
            raise ConfigError(
                f"max_side_ratio = {self.max_side_ratio}; accepted: a number from 1, or None"
            )

    def within(self, side_ratio: float | None) -> ImageLimits:
        """These limits, with a model's own side ratio where that is the lower one."""
        known = [ratio for ratio in (self.max_side_ratio, side_ratio) if ratio is not None]
        return replace(self, max_side_ratio=min(known, default=None))

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


@cache
def accepted_formats() -> tuple[str, ...]:
    """The formats that are decoded, by Pillow's names: no others, whatever Pillow knows."""
    found = []
    for name, plugin in _PLUGINS.items():
        try:
            import_module(f"PIL.{plugin}")
        except ImportError:
            continue
        if name in Image.OPEN and (name not in _OPTIONAL or features.check(name.lower())):
            found.append(name)
    return tuple(found)


def decode_image(
    data: bytes | Image.Image,
    limits: ImageLimits = ImageLimits(),
    digest: str = "",
    background: Colour = WHITE,
) -> DecodedImage:
    """Decode one image completely: the first frame, upright, opaque, three channels of 8 bits.

    Args:
        data: a file's bytes, or an image, which is not changed.
        digest: its digest, where it is known already.
        background: what shows through transparent pixels. It is no part of the digest: who keeps
            what is made of the pixels has to put it into their key.

    Raises:
        MediaError: not an image of an accepted format, over a limit, truncated or corrupt.
    """
    given = isinstance(data, Image.Image)
    image = data if isinstance(data, Image.Image) else _opened(data, limits)
    limits.check(*image.size)
    rawmode = rawmode_of(image)
    _load(image, "the image" if given else f"the {image.format} image")
    # Taken after loading: a broken image has no identity.
    digest = digest or digest_of(data)
    pixels = upright(to_rgb(image, background, rawmode), orientation_of(image))
    return DecodedImage(pixels.copy() if pixels is data else pixels, digest)


def _opened(data: bytes, limits: ImageLimits) -> Image.Image:
    """The image with its header read; no pixel is decoded yet."""
    if not data:
        raise MediaError("the image is empty: 0 bytes")
    known = accepted_formats()
    try:
        image = Image.open(io.BytesIO(data), formats=known)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MediaError(
            f"the image has too many pixels, at most {limits.max_pixels} are accepted: {error}"
        ) from error
    except Exception as error:  # decoders of damaged headers raise nearly anything
        raise MediaError(
            f"{len(data)} bytes (they begin with {data[:8]!r}) are no image that can be read; "
            f"accepted formats: {', '.join(known)}"
        ) from error
    if image.format in ("JPEG", "MPO"):
        # In pixels this marker is escaped, so that little else than scans has it.
        scans = data.count(b"\xff\xda")
        if scans > MAX_SCANS:
            raise MediaError(f"the JPEG image has {scans} scans; at most {MAX_SCANS} are accepted")
    return image


def _load(image: Image.Image, what: str) -> None:
    """Decode every pixel; most damage shows only here."""
    try:
        image.load()
    except MemoryError as error:
        raise MediaError(
            f"{what} of {image.width} x {image.height} takes too much memory"
        ) from error
    except Exception as error:  # as above
        reason = str(error) or type(error).__name__
        raise MediaError(f"{what} is truncated or corrupt: {reason}") from error
