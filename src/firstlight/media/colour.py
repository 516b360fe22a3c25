"""Any pixel mode to 8-bit RGB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from PIL import Image, ImageColor

from firstlight.errors import ConfigError, MediaError
from firstlight.media.deep_grey import grey_scale, is_deep

Colour = tuple[int, int, int]

WHITE: Final[Colour] = (255, 255, 255)
STRIP: Final = 1 << 20
"""Pixels that are converted at a time, so that nothing but the result takes much memory."""


def parse_colour(text: str) -> Colour:
    """A colour from its name or its hex digits: ``white``, ``#ffffff``.

    Raises:
        ConfigError: with the text and what is accepted.
    """
    try:
        red, green, blue, *_ = ImageColor.getrgb(text)
    except ValueError as error:
        raise ConfigError(
            f"{text!r} is no colour; accepted: a name such as 'white', or '#rrggbb'"
        ) from error
    return red, green, blue


def to_rgb(image: Image.Image, background: Colour = WHITE, rawmode: str = "") -> Image.Image:
    """Three channels of 8 bits; what is transparent is composited on ``background``.

    Dropping an alpha channel instead would show the colours hidden under transparent pixels.
    Embedded colour profiles are not applied.

    Args:
        image: loaded; it is not changed, and returned itself if it is as wanted already.
        rawmode: how its file stores pixels, from :func:`rawmode_of`.

    Raises:
        MediaError: for a mode that has no conversion, with its name.
    """
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    convert = _conversion(image, rawmode)
    width, height = image.size
    canvas = Image.new("RGB", image.size, background)
    rows = max(STRIP // width, 1)
    try:
        for top in range(0, height, rows):
            strip = convert(image.crop((0, top, width, min(top + rows, height))))
            canvas.paste(strip, (0, top), strip if strip.mode == "RGBA" else None)
    except ValueError as error:
        raise MediaError(f"images of pixel mode {image.mode!r} are not supported") from error
    return canvas


def rawmode_of(image: Image.Image) -> str:
    """How a file that is opened but not loaded stores its pixels; empty where nothing says it."""
    tiles = getattr(image, "tile", None)
    return tiles[0].args if tiles and isinstance(tiles[0].args, str) else ""


def _conversion(image: Image.Image, rawmode: str) -> Callable[[Image.Image], Image.Image]:
    """What makes RGB, or RGBA where something may be transparent, of a piece of the image."""
    if is_deep(image):
        scale = grey_scale(image)
        mode = "RGB" if scale.transparent is None else "RGBA"
        return lambda strip: scale.apply(strip).convert(mode)
    if not image.has_transparency_data:
        return lambda strip: strip.convert("RGB")
    transparent = _transparent(image, rawmode)

    def with_alpha(strip: Image.Image) -> Image.Image:
        if transparent is not None:
            strip.info["transparency"] = transparent
        # Premultiplied grey has no direct way.
        return (strip.convert("LA") if strip.mode == "La" else strip).convert("RGBA")

    return with_alpha


def _transparent(image: Image.Image, rawmode: str) -> object:
    """The colour that is transparent, in the scale of the decoded pixels.

    Pillow scales samples of 2, 4 and 16 bits to 8 but leaves this colour as the file has it, where
    it matches other pixels or none.
    """
    value = image.info.get("transparency")
    if image.mode == "L" and isinstance(value, int):
        return value * {"L;2": 85, "L;4": 17}.get(rawmode, 1)
    if image.mode == "RGB" and rawmode.startswith("RGB;16") and isinstance(value, tuple):
        return tuple(sample >> 8 for sample in value)
    return value
