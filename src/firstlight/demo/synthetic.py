"""Pictures that are made, not shipped, and of about a photograph's bytes per pixel."""

from __future__ import annotations

import random
from typing import Final

from PIL import Image, ImageChops

QUALITY: Final = 90
"""Of formats that lose something."""


def synthetic_picture(width: int, height: int, seed: int | str = 0) -> Image.Image:
    """Soft shapes under a little noise; the same at each call, another for another seed.

    Plain colours would be decoded in no time, and noise alone is what no camera sees.

    Args:
        width, height: in pixels.
    """
    chance = random.Random(seed)
    shapes, grain = (
        _noise(max(width // n, 2), max(height // n, 2), chance).resize((width, height), how)
        for n, how in ((64, Image.Resampling.BICUBIC), (4, Image.Resampling.BILINEAR))
    )
    return Image.blend(shapes, ImageChops.invert(grain), 0.06)


def _noise(width: int, height: int, chance: random.Random) -> Image.Image:
    return Image.frombytes("RGB", (width, height), chance.randbytes(3 * width * height))
