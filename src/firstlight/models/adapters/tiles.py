"""Families that cut an image into tiles of one size and surround them with tokens of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.media.picture_options import PictureOptions
from firstlight.models.adapter import Artifact
from firstlight.models.adapters.media import MediaAdapter, same_shape_groups
from firstlight.models.picture_options import split, tiles
from firstlight.models.tower import Tower


class InternVLAdapter(MediaAdapter):
    """InternVL: tiles and a thumbnail, all rows between ``<img>`` and ``</img>``."""

    @property
    def processor_options(self) -> Mapping[str, object]:
        """The family's processor always asks for tiles."""
        return {"crop_to_patches": True}

    def picture_options(self, processor: Any) -> PictureOptions:
        """A number of tiles; one for a picture of low detail."""
        return tiles(int(processor.min_patches), int(processor.max_patches))

    @property
    def probe_options(self) -> Mapping[str, object]:
        """One tile."""
        return {"crop_to_patches": False}

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """``image_seq_length`` rows per tile."""
        return tensors["pixel_values"].shape[0] * int(self.config.image_seq_length)

    def expand(self, artifact: Artifact) -> list[int]:
        """``<img>``, one media token per row, ``</img>``."""
        start, end = (
            self.tokenizer.convert_tokens_to_ids(getattr(self.tokenizer, name, default))
            for name, default in (("start_image_token", "<img>"), ("end_image_token", "</img>"))
        )
        return [start, *super().expand(artifact), end]

    def tower(self) -> Tower | str:
        """Tiles of the tower's own size."""
        height, width = self.vision_config.image_size
        return self._crop_tower((int(height), int(width)))

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """The tiles of all images in one tower call."""
        tiles = [a.tensors["pixel_values"].shape[0] for a in artifacts]
        pixels = torch.cat([a.tensors["pixel_values"] for a in artifacts])
        rows: Tensor = self._features(pixel_values=pixels).pooler_output
        return [part.flatten(0, 1) for part in torch.split(rows, tiles)]


class Idefics3Adapter(MediaAdapter):
    """Idefics3 and SmolVLM: rows of tiles, each announced by its place, then a global view."""

    @property
    def processor_options(self) -> Mapping[str, object]:
        """The rows and columns of tiles are needed for the prompt."""
        return {"return_row_col_info": True}

    def picture_options(self, processor: Any) -> PictureOptions:
        """Tiles or none; a picture of low detail is the global view alone."""
        tile = int(processor.max_image_size["longest_edge"])
        return split(processor.size, tile, bool(processor.do_image_splitting))

    @property
    def probe_options(self) -> Mapping[str, object]:
        """The global view alone."""
        return {"return_row_col_info": True, "do_image_splitting": False}

    def tower(self) -> Tower | str:
        """Which patches hold something is asked of the pixels."""
        return f"{self.architecture} reads on the host which tiles and patches are empty"

    def _tile_rows(self, tensors: Mapping[str, Tensor]) -> int:
        height, width = tensors["pixel_values"].shape[-2:]
        patch = int(self.vision_config.patch_size)
        return (height // patch) * (width // patch) // int(self.config.scale_factor) ** 2

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Rows of one tile times the tiles, the global view included."""
        return tensors["pixel_values"].shape[1] * self._tile_rows(tensors)

    def expand(self, artifact: Artifact) -> list[int]:
        """Tile by tile ``<fake_token_around_image><row_r_col_c>`` and media tokens, line ends
        after each row of tiles, then the global view; an unsplit image has only the latter."""
        tensors = artifact.tensors
        rows, columns = (int(tensors[name].reshape(-1)[0]) for name in ("rows", "cols"))
        fake = getattr(self.tokenizer, "fake_image_token", "<fake_token_around_image>")
        whole = getattr(self.tokenizer, "global_image_token", "<global-img>")
        media = self.placeholder * self._tile_rows(tensors)
        lines = [
            "".join(f"{fake}<row_{r + 1}_col_{c + 1}>{media}" for c in range(columns))
            for r in range(rows)
        ]
        # Special tokens delimit the text, so it is tokenised here as it would be in its prompt.
        text = "".join(line + "\n" for line in lines) + ("\n" if lines else "")
        ids: list[int] = self.tokenizer.encode(
            f"{text}{fake}{whole}{media}{fake}", add_special_tokens=False
        )
        return ids

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """Tiles of equal size in one tower call."""
        rows: list[Tensor] = [torch.empty(0)] * len(artifacts)
        for group in same_shape_groups(artifacts, "pixel_values", axis=2):
            for i, part in zip(
                group, self._encode_tiles([artifacts[i] for i in group]), strict=True
            ):
                rows[i] = part
        return rows

    def _encode_tiles(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """Tiles of equal size, all images in one line of the batch: no padding tiles arise."""
        names = ("pixel_values", "pixel_attention_mask")
        pixels, mask = (torch.cat([a.tensors[n] for a in artifacts], dim=1) for n in names)
        rows = self._features(pixel_values=pixels, pixel_attention_mask=mask).pooler_output[0]
        return list(rows.split([self.image_rows(a.tensors) for a in artifacts]))
