"""One picture through processor and tower before the first request, which would else pay for it.

The first call makes what a library makes once: threads, compiled kernels, memory.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final

import torch
from PIL import Image

from firstlight.media import decode_image
from firstlight.models.loading import LoadedModel

SIDE: Final = 448
"""Pixels of the picture's side; processors with a fixed size scale it to theirs."""

_LOG = logging.getLogger("firstlight.engine")


def warm_encoder(model: LoadedModel, clock: Callable[[], float]) -> float | None:
    """Prepare and encode a square of noise, by no cache and for nobody.

    A picture that fails here is no reason not to serve: the load's probe has encoded one, and a
    request whose picture fails is told so itself. It is logged.

    Args:
        clock: seconds, monotonic.

    Returns:
        The seconds it took; None for a model that takes no pictures.
    """
    if model.image_processor is None:
        return None
    began = clock()
    try:
        artifact = model.image_processor.artifact(decode_image(_noise()))
        with torch.no_grad():
            model.adapter.media_rows([artifact])
    except Exception as error:  # an adapter's own code may raise anything
        _LOG.warning(
            "warming the encoder with a picture of %d x %d failed: %s: %s",
            SIDE, SIDE, type(error).__name__, error,
        )  # fmt: skip
    return clock() - began


def _noise() -> Image.Image:
    """The same at each call; noise, because some towers drop a blank picture."""
    return Image.frombytes("RGB", (SIDE, SIDE), random.Random(0).randbytes(3 * SIDE * SIDE))
