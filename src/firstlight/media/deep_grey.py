"""Grey of more than 8 bits to 8: scaled, since a plain conversion clips all above 255 to white."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

_INT: Final = 2
"""TIFF's SampleFormat of signed integers."""


@dataclass(frozen=True, slots=True)
class GreyScale:
    """What the values of an image mean.

    Attributes:
        black, white: the values of both; white is the lower one in files that count ink.
        transparent: the value that stands for no colour at all.
        unsigned: 32-bit values that Pillow takes for signed ones.
    """

    black: float
    white: float
    transparent: int | None = None
    unsigned: bool = False

    def apply(self, strip: Image.Image) -> Image.Image:
        """``L``, or ``LA`` where one value is transparent."""
        values = np.asarray(strip)
        if self.unsigned:
            values = values.view(np.uint32)
        if values.dtype.kind == "u" and values.dtype.itemsize == 2:
            grey = self._grey(np.arange(1 << 16))[values]
        else:
            grey = self._grey(values)
        if self.transparent is None:
            return Image.fromarray(grey)
        alpha = np.where(values == self.transparent, 0, 255).astype(np.uint8)
        return Image.fromarray(np.dstack((grey, alpha)))

    def _grey(self, values: NDArray[Any]) -> NDArray[np.uint8]:
        factor = 255.0 / (self.white - self.black)
        scaled = np.rint((values.astype(np.float64) - self.black) * factor)
        # Float files may hold values that are no numbers; they are black.
        grey: NDArray[np.uint8] = np.nan_to_num(np.clip(scaled, 0, 255), nan=0.0).astype(np.uint8)
        return grey


def is_deep(image: Image.Image) -> bool:
    """Whether an image is grey of more than 8 bits."""
    return image.mode.startswith("I") or image.mode == "F"


def grey_scale(image: Image.Image) -> GreyScale:
    """What the values of a deep grey image mean: by its file where that says it, else by its mode.

    No file says it of float and 32-bit values. Floats are taken to end at 1, at 255 or at their
    largest value, and 32-bit integers at 65535 or at the end of their range, whichever is the first
    that none exceeds.
    """
    bits, kind, inverted = _tiff_facts(image)
    peak = _peak(image)
    white, unsigned = 65535.0, False
    if image.mode == "F":
        white = 1.0 if peak <= 1 else 255.0 if peak <= 255 else peak
    elif image.mode == "I" and bits == 16 and kind == _INT:
        white = 32767.0
    elif image.mode == "I" and bits == 32 and kind != _INT:
        unsigned = True
        white = 65535.0 if _trough(image) >= 0 and peak <= 65535 else float(2**32 - 1)
    elif image.mode == "I" and peak > 65535:
        white = float(2**31 - 1)
    elif 8 < bits < 16:
        white = float((1 << bits) - 1)
    transparent = image.info.get("transparency")
    return GreyScale(
        white if inverted else 0.0,
        0.0 if inverted else white,
        transparent if isinstance(transparent, int) else None,
        unsigned,
    )


def _tiff_facts(image: Image.Image) -> tuple[int, int, bool]:
    """Bits of a sample, their format, and whether 0 is white; 0 bits for what is no TIFF file."""
    if not isinstance(image, TiffImagePlugin.TiffImageFile):
        return 0, 0, False
    tags: Any = image.tag_v2
    bits = tags.get(TiffImagePlugin.BITSPERSAMPLE, (1,))[0]
    kind = tags.get(TiffImagePlugin.SAMPLEFORMAT, (1,))[0]
    return int(bits), int(kind), tags.get(TiffImagePlugin.PHOTOMETRIC_INTERPRETATION) == 0


def _peak(image: Image.Image) -> float:
    """The largest value that is a number."""
    if image.mode != "F":
        return _extreme(image, 1)
    values = np.asarray(image)
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


def _trough(image: Image.Image) -> float:
    return _extreme(image, 0)


def _extreme(image: Image.Image, which: int) -> float:
    """One end of the values; 0 for modes of which Pillow does not tell them."""
    try:
        value = image.getextrema()[which]
    except (ValueError, TypeError):
        return 0.0
    return float(value) if isinstance(value, int | float) else 0.0
