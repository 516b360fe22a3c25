"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: M-RoPE positions, and DeepStack as segments of one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.core.span import Span
from firstlight.media.picture_options import PictureOptions
from firstlight.models.adapter import Artifact
from firstlight.models.adapters.media import MediaAdapter
from firstlight.models.body import Body, DeepStackBody
from firstlight.models.picture_options import pixel_budget
from firstlight.models.positions import Positions, mrope_positions


class Qwen2VLAdapter(MediaAdapter):
    """Qwen2-VL and Qwen2.5-VL: one row per ``merge x merge`` patches, positions in three rows."""

    position_rank = 3

    def _grid(self, tensors: Mapping[str, Tensor]) -> tuple[int, int, int]:
        """``(t, h, w)`` in rows; the processor's grid counts patches and lives on the host."""
        t, h, w = tensors["image_grid_thw"].reshape(3).tolist()
        merge = int(self.vision_config.spatial_merge_size)
        return t, h // merge, w // merge

    def image_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """Patches over the square of the merge size."""
        t, h, w = self._grid(tensors)
        return t * h * w

    def picture_options(self, processor: Any) -> PictureOptions:
        """A budget of pixels."""
        cell = int(self.vision_config.patch_size) * int(self.vision_config.spatial_merge_size)
        return pixel_budget(processor.size, cell)

    def positions(
        self, n_tokens: int, spans: Sequence[Span], artifacts: Sequence[Artifact]
    ) -> Positions:
        """M-RoPE positions ``[3, n]``; each image is one contiguous span."""
        blocks = [(s.start, s.end, self._grid(artifacts[s.item].tensors)) for s in spans]
        return mrope_positions(n_tokens, sorted(blocks))

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """The patches of all images in one call; the tower attends within each grid only."""
        features = self._features(
            pixel_values=torch.cat([a.tensors["pixel_values"] for a in artifacts]),
            image_grid_thw=torch.cat([a.tensors["image_grid_thw"] for a in artifacts]),
        )
        per_image = [features.pooler_output, *(getattr(features, "deepstack_features", None) or ())]
        return [
            parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
            for parts in zip(*per_image, strict=True)
        ]


class Qwen3VLAdapter(Qwen2VLAdapter):
    """Qwen3-VL: a media row also carries k tapped tower layers, added after decoder layers 0..k-1.

    A row has ``hidden_size * (1 + k)`` columns; k may be 0.
    """

    @property
    def input_segments(self) -> list[tuple[str, int]]:
        """``tokens``, then ``deepstack.0`` to ``deepstack.k-1``, each ``hidden_size`` wide."""
        width = int(self.text_config.hidden_size)
        taps = len(self.vision_config.deepstack_visual_indexes)
        return [("tokens", width), *((f"deepstack.{j}", width) for j in range(taps))]

    def body(self) -> Body:
        """transformers' layers with the dense DeepStack add."""
        tokens, *stacks = self.contract.segments
        return DeepStackBody(self.decoder, tokens, stacks)
