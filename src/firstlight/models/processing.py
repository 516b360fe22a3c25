"""Calling a family's image processor for one image."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor


@dataclass(frozen=True, slots=True)
class ImageTensors:
    """The least that an adapter takes as an artifact: the processor's tensors of one image."""

    tensors: Mapping[str, Tensor]


def image_tensors(
    image_processor: Any, image: Image.Image, options: Mapping[str, object]
) -> dict[str, Tensor]:
    """Run ``image_processor`` on one RGB image.

    Args:
        options: the adapter's ``processor_options``.

    Returns:
        All that it made, by its names; each keeps the batch axis of one image, if it has one.
        Counts that some processors leave as nested lists (rows and columns of tiles) become int64
        tensors.
    """
    made = image_processor(images=[image], return_tensors="pt", **options)
    return {name: torch.as_tensor(value) for name, value in made.items()}


def probe_image(side: int = 32) -> Image.Image:
    """A small square of noise, the same at each call; noise, because some towers drop a blank."""
    pixels = np.random.default_rng(0).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(pixels, "RGB")
