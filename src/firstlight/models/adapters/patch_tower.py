"""Qwen's towers over patches of any number of pictures, as a body that a graph can hold.

transformers takes what depends on the sizes of pictures as tensors beside the pixels: positions,
the borders of segments, the weights by which learned positions are mixed. So all of it lies in
buffers, and one graph serves every split of its patches into pictures and frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from firstlight.media.artifact import VIDEO
from firstlight.models.adapter import Artifact
from firstlight.models.tower import Example, Load, Per, Tail, TowerInput

_PIXELS = {"image": "pixel_values", VIDEO: "pixel_values_videos"}
_GRIDS = {"image": "image_grid_thw", VIDEO: "video_grid_thw"}


class PatchTower:
    """The tower of Qwen2-VL, Qwen2.5-VL or Qwen3-VL.

    A unit is a row of the result: ``merge x merge`` patches that lie behind one another.

    Args:
        tower: transformers' module.
        dtype, device: of the buffers that pixels are written to.
    """

    budgets = (64, 128, 256)

    def __init__(self, tower: Any, dtype: torch.dtype, device: torch.device) -> None:
        self._tower = tower
        self._dtype, self._device = dtype, device
        self._config = tower.config
        self._merge = int(self._config.spatial_merge_size)
        self._patches = self._merge**2
        self.inputs = tuple(self._inputs())

    @property
    def unit(self) -> str:
        """Rows of the result."""
        return f"rows of {self._patches} patches"

    @property
    def _windowed(self) -> bool:
        return hasattr(self._tower, "window_size")

    @property
    def _interpolates(self) -> bool:
        return hasattr(self._tower, "num_grid_per_side")

    def _inputs(self) -> list[TowerInput]:
        n, c = self._patches, self._config
        width = c.temporal_patch_size * c.patch_size**2 * getattr(c, "in_channels", 3)
        found = [
            TowerInput("pixels", (n * width,), self._dtype),
            TowerInput("segment_ends", (), torch.int32, Per.SEGMENT, Tail.LAST, index=True),
            TowerInput("patch_positions", (n, 2), torch.int64, index=True),
        ]
        if self._interpolates:
            found += [
                TowerInput("position_taps", (n, 4), torch.int64, index=True),
                TowerInput("position_weights", (n, 4), torch.float32),
            ]
        if self._windowed:
            found += [
                TowerInput("window_rows", (), torch.int64, tail=Tail.OWN, index=True),
                TowerInput("window_ends", (), torch.int32, tail=Tail.LAST, index=True),
            ]
        return found

    def load(self, artifact: Artifact) -> Load:
        """Each row in time is a segment of its own."""
        t, h, w = self._grid(artifact).reshape(3).tolist()
        return Load(t * h * w // self._patches, t)

    def _grid(self, artifact: Artifact) -> Tensor:
        return artifact.tensors[_GRIDS[artifact.modality]]

    def values(self, artifacts: Sequence[Artifact]) -> dict[str, Tensor]:
        """As transformers computes them from the grids, on the host."""
        from transformers import vision_utils as utils

        grids = torch.cat([self._grid(a) for a in artifacts])
        pixels = torch.cat([a.tensors[_PIXELS[a.modality]] for a in artifacts])
        units = len(pixels) // self._patches
        found = {
            "pixels": pixels.to(self._dtype).reshape(units, -1),
            "segment_ends": utils.get_vision_cu_seqlens(grids)[1:].to(torch.int32),
            "patch_positions": utils.get_vision_position_ids(grids, self._merge),
        }
        if self._interpolates:
            taps, weights = utils.get_vision_interpolation_indices_and_weights(
                grids,
                num_grid_per_side=self._tower.num_grid_per_side,
                mode=self._tower.interpolation_mode,
                align_corners=self._tower.interpolation_align_corners,
                spatial_merge_size=self._merge,
            )
            found |= {"position_taps": taps, "position_weights": weights.float()}
        if self._windowed:
            rows, bounds = utils.get_vision_window_index(
                grids, self._merge, self._tower.window_size, self._tower.patch_size
            )
            ends = torch.full((units,), int(bounds[-1]), dtype=torch.int32)
            ends[: len(bounds) - 1] = bounds[1:]
            found |= {"window_rows": rows, "window_ends": ends}
        shapes = {i.name: (-1, *i.shape) for i in self.inputs}
        return {n: t.reshape(shapes[n]).to(self._device) for n, t in found.items()}

    def body(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """``[units, W]``: the row, and what is tapped as further columns."""
        patches = inputs["pixels"].shape[0] * self._patches
        given: dict[str, Any] = {
            "cu_seqlens": _bounds(inputs["segment_ends"]),
            "position_ids": inputs["patch_positions"].view(patches, 2),
        }
        if self._interpolates:
            given["interp_indices"] = inputs["position_taps"].view(patches, -1)
            given["interp_weights"] = inputs["position_weights"].view(patches, -1)
        if self._windowed:
            given["window_index"] = inputs["window_rows"]
            given["cu_window_seqlens"] = _bounds(inputs["window_ends"])
        out = self._tower(inputs["pixels"].view(patches, -1), grid_thw=None, **given)
        parts = [out.pooler_output, *(getattr(out, "deepstack_features", None) or ())]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def split(self, output: Tensor, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """Rows lie in the artifacts' order."""
        counts = [self.load(a).units for a in artifacts]
        return list(torch.split(output[: sum(counts)], counts))

    def example(self, parts: Sequence[int], seed: int) -> list[Artifact]:
        """Pictures that are one row high where the number of rows is odd, else two."""
        generator = torch.Generator().manual_seed(seed)
        width = self.inputs[0].shape[0] // self._patches
        found: list[Artifact] = []
        for units in parts:
            high = self._merge * (2 if units % 2 == 0 else 1)
            grid = torch.tensor([[1, high, units * self._patches // high]])
            pixels = torch.randn(units * self._patches, width, generator=generator)
            found.append(Example({_PIXELS["image"]: pixels, _GRIDS["image"]: grid}))
        return found


def _bounds(ends: Tensor) -> Tensor:
    """Where segments begin, and the last end, from where each ends."""
    return pad(ends, (1, 0))
