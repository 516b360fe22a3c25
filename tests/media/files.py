"""Encoded pictures for the tests."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of a file."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def opened(data: bytes) -> Image.Image:
    """As a caller opens a file: lazily, with all that the file says."""
    return Image.open(io.BytesIO(data))


def halves(width: int = 48, height: int = 16) -> Image.Image:
    """Left half red, right half blue."""
    image = Image.new("RGB", (width, height), (255, 0, 0))
    image.paste((0, 0, 255), (width // 2, 0, width, height))
    return image


def noise(width: int = 64, height: int = 64, seed: int = 0) -> Image.Image:
    """RGB noise, which no codec compresses well."""
    values = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)
