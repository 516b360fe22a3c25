"""Towers over crops of one size, as a body that a graph can hold: its key is how many crops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from firstlight.models.adapter import Artifact
from firstlight.models.tower import Example, Load, TowerInput

_PIXELS = "pixel_values"


class CropTower:
    """CLIP, SigLIP and InternVL's tower with the projector behind it.

    Args:
        features: gives ``[crops, rows, W]``, or a list of as many, of pixels
            ``[crops, 3, height, width]``.
        size: height and width of a crop.
    """

    unit = "crops"
    budgets = (1, 2, 4)

    def __init__(
        self,
        features: Callable[[Tensor], Any],
        size: tuple[int, int],
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self._features = features
        self._dtype, self._device = dtype, device
        self.inputs = (TowerInput("pixels", (3, *size), dtype),)

    def load(self, artifact: Artifact) -> Load | str:
        """A crop is a unit; one of another size than the tower's own goes eager."""
        pixels = artifact.tensors[_PIXELS]
        size = self.inputs[0].shape
        if tuple(pixels.shape[1:]) != size:
            return f"crops of {list(pixels.shape[1:])}, the graphs take {list(size)}"
        return Load(pixels.shape[0], pixels.shape[0])

    def values(self, artifacts: Sequence[Artifact]) -> dict[str, Tensor]:
        """Crops of all artifacts."""
        pixels = torch.cat([a.tensors[_PIXELS] for a in artifacts])
        return {"pixels": pixels.to(self._device, self._dtype)}

    def body(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """``[crops, rows, W]``."""
        found = self._features(inputs["pixels"])
        return found if isinstance(found, Tensor) else torch.stack(list(found))

    def split(self, output: Tensor, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """The rows of an artifact's crops behind one another."""
        counts = [a.tensors[_PIXELS].shape[0] for a in artifacts]
        return [part.flatten(0, 1) for part in torch.split(output[: sum(counts)], counts)]

    def example(self, parts: Sequence[int], seed: int) -> list[Artifact]:
        """Artifacts of so many crops each; a family of one crop an artifact gets as many more."""
        generator = torch.Generator().manual_seed(seed)
        return [
            Example({_PIXELS: torch.randn(1, *self.inputs[0].shape, generator=generator)})
            for _ in range(sum(parts))
        ]
