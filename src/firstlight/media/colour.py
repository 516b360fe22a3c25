"""Any pixel mode to 8-bit RGB."""

from __future__ import annotations

import numpy as np
from PIL import Image

from firstlight.errors import MediaError

WHITE = (255, 255, 255, 255)


def to_rgb(image: Image.Image) -> Image.Image:
    """Three channels of 8 bits; transparency is composited on white.

    Dropping an alpha channel instead would show the colours hidden under transparent pixels.
    Embedded colour profiles are not applied.

    Raises:
        MediaError: for a mode that has no conversion, with its name.
    """
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode.startswith("I") or image.mode == "F":
        return _from_deep_grey(image).convert("RGB")
    try:
        if image.has_transparency_data:
            rgba = image.convert("RGBA")
            return Image.alpha_composite(Image.new("RGBA", rgba.size, WHITE), rgba).convert("RGB")
        return image.convert("RGB")
    except ValueError as error:
        raise MediaError(f"images of pixel mode {image.mode!r} are not supported") from error


def _from_deep_grey(image: Image.Image) -> Image.Image:
    """Grey of more than 8 bits, scaled: Pillow's own conversion clips everything above 255."""
    values = np.asarray(image).astype(np.float64)
    white = _white_level(image.mode, float(values.max(initial=0.0)))
    scaled = np.clip(np.rint(values * (255.0 / white)), 0, 255)
    return Image.fromarray(scaled.astype(np.uint8))


def _white_level(mode: str, peak: float) -> float:
    """The value that means white. Files do not say it for 32-bit and float pixels."""
    if mode == "F":
        return 1.0 if peak <= 1.0 else 255.0 if peak <= 255.0 else peak
    if mode == "I" and peak > 65535:
        return float(2**31 - 1)
    return 65535.0
