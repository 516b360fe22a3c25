"""Bytes to an upright RGB image, safely: the limits hold before a pixel is decoded."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Final

from PIL import Image, features

from firstlight.errors import MediaError
from firstlight.media.colour import WHITE, Colour, rawmode_of, to_rgb
from firstlight.media.digest import digest_of
from firstlight.media.image_limits import DEFAULT_LIMITS, ImageLimits
from firstlight.media.orientation import orientation_of, upright
from firstlight.media.parts import check_parts

__all__ = ["DecodedImage", "ImageLimits", "accepted_formats", "decode_image"]

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
    limits: ImageLimits = DEFAULT_LIMITS,
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
    limits.check(*image.size, len(data) if isinstance(data, bytes) else None)
    rawmode = rawmode_of(image)
    _load(image, "the image" if given else f"the {image.format} image")
    # Taken after loading: a broken image has no identity.
    digest = digest or digest_of(data)
    orientation = orientation_of(image)
    pixels = to_rgb(image, background, rawmode)
    del image  # frees the decoded pixels before they are turned
    pixels = upright(pixels, orientation)
    return DecodedImage(pixels.copy() if pixels is data else pixels, digest)


def _opened(data: bytes, limits: ImageLimits) -> Image.Image:
    """The image with its header read; no pixel is decoded yet."""
    if not data:
        raise MediaError("the image is empty: 0 bytes")
    check_parts(data)
    known = accepted_formats()
    try:
        return Image.open(io.BytesIO(data), formats=known)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MediaError(
            f"the image has too many pixels, at most {limits.max_pixels} are accepted: {error}"
        ) from error
    except Exception as error:  # decoders of damaged headers raise nearly anything
        raise MediaError(
            f"{len(data)} bytes (they begin with {data[:8]!r}) are no image that can be read; "
            f"accepted formats: {', '.join(known)}"
        ) from error


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
