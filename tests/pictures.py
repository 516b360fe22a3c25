"""Small seeded pictures for tests."""

from __future__ import annotations

import numpy as np
from PIL import Image


def picture(width: int = 48, height: int = 32, seed: int = 0) -> Image.Image:
    """Coloured blocks of 8 x 8 pixels, no two pictures of different seeds alike."""
    blocks = np.random.default_rng(seed).integers(0, 256, (-(-height // 8), -(-width // 8), 3))
    pixels = blocks.astype(np.uint8).repeat(8, axis=0).repeat(8, axis=1)
    return Image.fromarray(pixels[:height, :width], "RGB")
