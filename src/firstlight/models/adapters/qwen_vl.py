"""Qwen2-VL, Qwen2.5-VL and Qwen3-VL: M-RoPE positions, videos, DeepStack as segments of one row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.core.span import Span
from firstlight.media.artifact import VIDEO
from firstlight.media.picture_options import PictureOptions
from firstlight.media.video import VideoRules
from firstlight.models.adapter import Artifact
from firstlight.models.adapters.patch_tower import PatchTower
from firstlight.models.adapters.video import VideoAdapter
from firstlight.models.adapters.video_rules import Qwen2VideoRules, Qwen3VideoRules
from firstlight.models.body import Body, DeepStackBody
from firstlight.models.picture_options import pixel_budget
from firstlight.models.positions import GridBlock, Positions, mrope_positions
from firstlight.models.tower import Tower

_IMAGE_GRID, _VIDEO_GRID = "image_grid_thw", "video_grid_thw"


class Qwen2VLAdapter(VideoAdapter):
    """Qwen2-VL: one row per ``merge x merge`` patches, positions in three rows.

    A video fills one span, and its rows in time count on by one.
    """

    position_rank = 3

    def _grid(self, tensors: Mapping[str, Tensor], name: str = _IMAGE_GRID) -> tuple[int, int, int]:
        """``(t, h, w)`` in rows; the processor's grid counts patches and lives on the host."""
        t, h, w = tensors[name].reshape(3).tolist()
        merge = int(self.vision_config.spatial_merge_size)
        return t, h // merge, w // merge

    def video_rules(self, settings: Mapping[str, Any]) -> VideoRules:
        """Of ``Qwen2VLVideoProcessor``."""
        return Qwen2VideoRules.of(settings)

    def video_rows(self, tensors: Mapping[str, Tensor]) -> int:
        """As for an image, for all rows in time."""
        t, h, w = self._grid(tensors, _VIDEO_GRID)
        return t * h * w

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
        """M-RoPE positions ``[3, n]``; each span holds a whole grid."""
        blocks = [self._block(span, artifacts[span.item]) for span in spans]
        return mrope_positions(n_tokens, sorted(blocks))

    def _block(self, span: Span, artifact: Artifact) -> GridBlock:
        if artifact.modality == VIDEO:
            return self._video_block(span, artifact.tensors)
        return GridBlock(span.start, span.end, self._grid(artifact.tensors))

    def _video_block(self, span: Span, tensors: Mapping[str, Tensor]) -> GridBlock:
        return GridBlock(span.start, span.end, self._grid(tensors, _VIDEO_GRID))

    def tower(self) -> Tower | str:
        """The tower over patches; transformers that lack its helpers cannot be captured."""
        try:
            from transformers import vision_utils  # noqa: F401
        except ImportError as error:
            return f"this version of transformers computes positions inside of its tower: {error}"
        return PatchTower(self.model.model.visual, self.dtype, self.device)

    def encode_images(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """The patches of all images in one call; the tower attends within each grid only."""
        return _rows(
            self._features(
                pixel_values=torch.cat([a.tensors["pixel_values"] for a in artifacts]),
                image_grid_thw=torch.cat([a.tensors[_IMAGE_GRID] for a in artifacts]),
            )
        )

    def encode_videos(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """The same tower, which attends within each grid row in time only."""
        patches = torch.cat([a.tensors["pixel_values_videos"] for a in artifacts])
        grids = torch.cat([a.tensors[_VIDEO_GRID] for a in artifacts])
        return _rows(self.model.get_video_features(self._to_model(patches), self._to_model(grids)))


class Qwen25VLAdapter(Qwen2VLAdapter):
    """Qwen2.5-VL: as Qwen2-VL, but rows of a video lie as far apart in time as its frames."""

    def _video_block(self, span: Span, tensors: Mapping[str, Tensor]) -> GridBlock:
        block = super()._video_block(span, tensors)
        seconds = tensors["second_per_grid_ts"] * self.vision_config.tokens_per_second
        return block._replace(interval=seconds.item())


class Qwen3VLAdapter(Qwen2VLAdapter):
    """Qwen3-VL: a media row also carries k tapped tower layers, added after decoder layers 0..k-1.

    A row has ``hidden_size * (1 + k)`` columns; k may be 0. A video fills one span per grid row in
    time; before each stands the text that says when it was.
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

    def video_rules(self, settings: Mapping[str, Any]) -> VideoRules:
        """Of ``Qwen3VLVideoProcessor``."""
        return Qwen3VideoRules.of(settings)

    def video_text(self, artifact: Artifact) -> str:
        """The time of the first row, and the row between its borders."""
        start, end = self._borders
        first, *_ = artifact.tensors["timestamps"].tolist()
        return _time(first) + self._name(start) + self._name(self.video_token_id) + self._name(end)

    def expand_video(self, artifact: Artifact) -> list[int]:
        """All rows; between them the border, the time and the border that begins the next one."""
        start, end = self._borders
        _, h, w = self._grid(artifact.tensors, _VIDEO_GRID)
        row = [self.video_token_id] * (h * w)
        ids = list(row)
        for seconds in artifact.tensors["timestamps"].tolist()[1:]:
            time = self.tokenizer(_time(seconds), add_special_tokens=False)["input_ids"]
            ids += [end, *map(int, time), start, *row]
        return ids

    @property
    def _borders(self) -> tuple[int, int]:
        return int(self.config.vision_start_token_id), int(self.config.vision_end_token_id)

    def _name(self, token_id: int) -> str:
        return str(self.tokenizer.convert_ids_to_tokens(token_id))

    def _video_block(self, span: Span, tensors: Mapping[str, Tensor]) -> GridBlock:
        _, h, w = self._grid(tensors, _VIDEO_GRID)
        return GridBlock(span.start, span.end, (1, h, w))


def _time(seconds: float) -> str:
    return f"<{seconds:.1f} seconds>"


def _rows(features: Any) -> list[Tensor]:
    """``[rows, W]`` of each item: the tower's output, and what it taps as further columns."""
    parts = [features.pooler_output, *(getattr(features, "deepstack_features", None) or ())]
    return [
        columns[0] if len(columns) == 1 else torch.cat(columns, dim=-1)
        for columns in zip(*parts, strict=True)
    ]
