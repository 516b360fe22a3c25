"""An image processor of transformers, called for one image at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor

from firstlight.errors import MediaError
from firstlight.media.artifact import Artifact
from firstlight.media.decode import DecodedImage
from firstlight.media.identity import fingerprint_of
from firstlight.media.picture_options import SHRINK, PictureOptions
from firstlight.media.side_ratio import side_ratio_limit


class ImageProcessor:
    """Makes artifacts; holds no state of any request, so threads may share it.

    One image a call keeps an artifact free of its neighbours: processors that pad a batch would
    otherwise give an image other tensors in other company.

    Args:
        processor: a transformers image processor with the PIL backend.
        options: keyword arguments for each of its calls, as the model's adapter asks for.
        choices: what a request may choose about its own calls.
    """

    def __init__(
        self,
        processor: Any,
        options: Mapping[str, object] | None = None,
        choices: PictureOptions | None = None,
    ) -> None:
        self._processor = processor
        self._options = dict(options or {})
        self.choices = choices or PictureOptions()

    @property
    def name(self) -> str:
        """The processor's class."""
        return type(self._processor).__name__

    def artifact(
        self, image: DecodedImage, key: str = "", chosen: Mapping[str, object] | None = None
    ) -> Artifact:
        """Prepare one image.

        Args:
            key: what the artifact is to be known by.
            chosen: of this call, from :meth:`PictureOptions.resolve`; they go before ``options``.

        Raises:
            MediaError: the processor refuses it, e.g. for a side ratio over the model's limit.
        """
        width, height = image.size
        options = {**self._options, **(chosen or {})}
        pixels = _shrunk(image.pixels, options.pop(SHRINK, None))
        try:
            features = self._processor(images=[pixels], return_tensors="pt", **options)
        except Exception as error:  # processors check sizes with whatever exception they like
            reason = " ".join(str(error).split()) or type(error).__name__
            raise MediaError(
                f"{self.name} does not accept the image of {width} x {height} pixels: {reason}"
            ) from error
        tensors = {name: _tensor(value) for name, value in features.items()}
        return Artifact(
            {name: tensor for name, tensor in tensors.items() if tensor is not None},
            image.size,
            image.digest,
            key,
        )

    def side_ratio_limit(self) -> float | None:
        """The largest ratio of long to short side that it accepts; None if it has no limit."""
        return side_ratio_limit(self._processor)

    def fingerprint(self) -> str:
        """Identity of everything but the image that decides the tensors.

        ``sha256:<hex>``, equal in every process; or, where a setting cannot be described, a text
        that no other processor has.
        """
        kind = type(self._processor)
        facts = {
            "transformers": transformers.__version__,
            "class": f"{kind.__module__}.{kind.__qualname__}",
            "config": self._processor.to_dict(),
            "options": self._options,
        }
        try:
            return fingerprint_of(facts)
        except TypeError:
            return f"unique:{uuid4()}"


def _shrunk(image: Image.Image, side: object) -> Image.Image:
    """The image, scaled down if its longest side is longer than ``side`` pixels."""
    longest = max(image.size)
    if not isinstance(side, int) or longest <= side:
        return image
    width, height = (max(round(edge * side / longest), 1) for edge in image.size)
    return image.resize((width, height), Image.Resampling.BICUBIC)


def _tensor(value: object) -> Tensor | None:
    """Numbers of any form as an own CPU tensor; None for what holds none."""
    if isinstance(value, Tensor):
        return value.detach().cpu().contiguous()
    try:
        array = np.asarray(value)
    except ValueError:  # ragged
        return None
    return torch.from_numpy(array.copy()) if array.dtype.kind in "biuf" else None
