"""Pictures to measure with: made, not shipped, and of about a photograph's bytes per pixel."""

from __future__ import annotations

import io
import random
from typing import Final

from PIL import Image, ImageChops

from firstlight.errors import MediaError
from firstlight.media.decode import accepted_formats

QUALITY: Final = 90
"""Of formats that lose something."""


def encoded_square(side: int, kind: str, seed: int = 0) -> bytes:
    """A square picture as a file: soft shapes under a little noise; the same at each call.

    Plain colours would be decoded in no time, and noise alone is what no camera sees.

    Args:
        side: in pixels.
        kind: a format by Pillow's name, e.g. ``JPEG``.

    Raises:
        MediaError: a format that is not decoded here, or that Pillow cannot write.
    """
    kind = kind.upper()
    known = accepted_formats()
    if kind not in known:
        raise MediaError(f"{kind} pictures are not read here; accepted: {', '.join(known)}")
    chance = random.Random(seed)
    coarse, fine = (max(side // n, 2) for n in (64, 4))
    shapes = _noise(coarse, chance).resize((side, side), Image.Resampling.BICUBIC)
    grain = _noise(fine, chance).resize((side, side), Image.Resampling.BILINEAR)
    image = Image.blend(shapes, ImageChops.invert(grain), 0.06)
    file = io.BytesIO()
    options = {"quality": QUALITY} if kind in ("JPEG", "WEBP", "AVIF") else {}
    try:
        image.save(file, kind, **options)
    except (OSError, KeyError, ValueError) as error:
        raise MediaError(f"a {kind} picture of {side} x {side} cannot be made: {error}") from error
    return file.getvalue()


def _noise(side: int, chance: random.Random) -> Image.Image:
    return Image.frombytes("RGB", (side, side), chance.randbytes(3 * side * side))
