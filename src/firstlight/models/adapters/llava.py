"""LLaVA, LLaVA-NeXT and LLaVA-OneVision: a tower, a projector, rows in reading order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.media.picture_options import SHRINK, PictureOptions
from firstlight.models.adapter import Adapter, Artifact
from firstlight.models.adapters.media import MediaAdapter, same_shape_groups
from firstlight.models.adapters.pixtral import PixtralAdapter
from firstlight.models.tower import Tower


class LlavaAdapter(MediaAdapter):
    """LLaVA: one crop per image, one row per patch (less or plus a class token)."""

    @classmethod
    def for_model(cls, model: Any) -> type[Adapter]:
        """The architecture also stands for Pixtral models, told by their tower alone."""
        return PixtralAdapter if model.config.vision_config.model_type == "pixtral" else cls

    @property
    def _tile_rows(self) -> int:
        """Rows of one square crop of the tower's own size."""
        side = int(self.vision_config.image_size) // int(self.vision_config.patch_size)
        return side * side + self._class_rows

    @property
    def _class_rows(self) -> int:
        has_class = str(self.vision_config.model_type).startswith("clip")
        return int(has_class) - int(self.config.vision_feature_select_strategy == "default")

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Patches of the crop, corrected for the class token."""
        height, width = tensors["pixel_values"].shape[-2:]
        patch = int(self.vision_config.patch_size)
        return (height // patch) * (width // patch) + self._class_rows

    def tower(self) -> Tower | str:
        """Crops of the tower's own size."""
        side = int(self.vision_config.image_size)
        return self._crop_tower((side, side))

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """Crops of equal size in one tower call."""
        rows: list[Tensor] = [torch.empty(0)] * len(artifacts)
        for group in same_shape_groups(artifacts, "pixel_values", axis=1):
            pixels = torch.cat([artifacts[i].tensors["pixel_values"] for i in group])
            for i, part in zip(
                group, self._features(pixel_values=pixels).pooler_output, strict=True
            ):
                rows[i] = part
        return rows


class LlavaNextAdapter(LlavaAdapter):
    """LLaVA-NeXT: a base view and a grid of tiles, cut to the image's shape, with line ends.

    An image is always treated as the only one of its prompt: what it becomes depends on no other.
    """

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Rows of the base view, and of the tiles without padding, one line end per line."""
        lines, columns = self._unpadded_grid(tensors)
        return self._tile_rows + lines * (columns + 1)

    def picture_options(self, processor: Any) -> PictureOptions:
        """A picture of low detail is scaled down to one tile, so that few are made of it.

        The tower's own list of grids is fixed: the model reads it again from its configuration.
        """
        return PictureOptions(details={"low": {SHRINK: int(self.vision_config.image_size)}})

    def tower(self) -> Tower | str:
        """Between tower and rows, tiles are put together and cut."""
        return f"{self.architecture} cuts rows to each picture's shape on the host"

    def _unpadded_grid(self, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
        """Lines and columns of patches that the tiles keep of the image."""
        from transformers.image_processing_utils import select_best_resolution

        height, width = tensors["image_sizes"].reshape(2).tolist()
        tile = int(self.vision_config.image_size)
        side = tile // int(self.vision_config.patch_size)
        fitted = select_best_resolution((height, width), self.config.image_grid_pinpoints)
        lines, columns = (int(f) // tile * side for f in fitted)
        if width / height > columns / lines:
            kept = int(round(height * (columns / width), 7))
            lines -= (lines - kept) // 2 * 2
        else:
            kept = int(round(width * (lines / height), 7))
            columns -= (columns - kept) // 2 * 2
        return lines, columns

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """All tiles of all images as one batch of crops."""
        features = self._features(
            pixel_values=torch.cat([a.tensors["pixel_values"][0] for a in artifacts]),
            image_sizes=torch.cat([a.tensors["image_sizes"] for a in artifacts]),
        )
        return list(features.pooler_output)


class LlavaOnevisionAdapter(LlavaNextAdapter):
    """LLaVA-OneVision: as LLaVA-NeXT, but large tile grids are scaled down (``anyres_max_N``)."""

    def _unpadded_grid(self, tensors: Mapping[str, Tensor]) -> tuple[int, int]:
        lines, columns = super()._unpadded_grid(tensors)
        side = int(self.vision_config.image_size) // int(self.vision_config.patch_size)
        limit = int(str(self.config.vision_aspect_ratio).removeprefix("anyres_max_"))
        ratio = math.sqrt(lines * columns / (limit * side**2))
        return (int(lines // ratio), int(columns // ratio)) if ratio > 1.1 else (lines, columns)
