"""Pixtral towers: images at their own size, a break token after each line of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from firstlight.media.picture_options import PictureOptions
from firstlight.models.adapter import Artifact
from firstlight.models.adapters.media import MediaAdapter
from firstlight.models.picture_options import longest_edge
from firstlight.models.tower import Tower

_BREAK, _END = "[IMG_BREAK]", "[IMG_END]"


class PixtralAdapter(MediaAdapter):
    """Mistral 3 and Pixtral: images at their own size, a break token after each line of rows.

    The tower attends within one image only; images go through it one by one, since a batch would
    pay for the attention between images only to mask it.
    """

    @property
    def _cell(self) -> int:
        """Pixels on the side of one row's square."""
        return int(self.vision_config.patch_size) * int(
            getattr(self.config, "spatial_merge_size", 1)
        )

    @property
    def processor_options(self) -> Mapping[str, object]:
        """Images are resized to whole rows, not only to whole patches."""
        return {"patch_size": self._cell}

    def picture_options(self, processor: Any) -> PictureOptions:
        """A longest side."""
        return longest_edge(processor.size, self._cell, int(self.vision_config.image_size))

    def _grid(self, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
        height, width = tensors["image_sizes"].reshape(2).tolist()
        return height // self._cell, width // self._cell

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """One row per square of merged patches."""
        lines, columns = self._grid(tensors)
        return lines * columns

    def expand(self, artifact: Artifact) -> list[int]:
        """Each line of media tokens with ``[IMG_BREAK]`` behind it, the last with ``[IMG_END]``."""
        lines, columns = self._grid(artifact.tensors)
        line_end, end = self.tokenizer.convert_tokens_to_ids([_BREAK, _END])
        line = [self.media_token_id] * columns
        return [*line, line_end] * (lines - 1) + [*line, end]

    def tower(self) -> Tower | str:
        """Masks and positions of each picture are made from its size inside of the tower."""
        return f"{self.architecture} makes masks from each picture's size on the host"

    def encode_one(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """One image at its own size.

        transformers squeezes the axis of images away before it splits the rows, and with it that
        of the rows where there is only one. Such an image goes in twice; no image sees another.
        """
        pixels, sizes = tensors["pixel_values"], tensors["image_sizes"]
        if self.image_rows(tensors) == 1:
            pixels, sizes = pixels.repeat(2, 1, 1, 1), sizes.reshape(1, 2).repeat(2, 1)
        features = self._features(pixel_values=pixels, image_sizes=sizes)
        rows: Tensor = features.pooler_output[0]
        return rows
