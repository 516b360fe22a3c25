"""The plain merge: media rows as wide as text rows, put where the media token stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from firstlight.models.adapter import Adapter, Artifact
from firstlight.models.adapters.crop_tower import CropTower

if TYPE_CHECKING:
    from firstlight.models.tower import Tower


class MediaAdapter(Adapter):
    """Base of all families with an image tower."""

    multimodal = True

    @property
    def media_token_id(self) -> int:
        """``config.image_token_id``."""
        return int(self.config.image_token_id)

    @property
    def vision_config(self) -> Any:
        """The tower's part of the configuration."""
        return self.config.vision_config

    def _features(self, **tensors: Tensor | None) -> Any:
        """``get_image_features`` of the model, tensors moved and cast to its weights."""
        moved = {
            name: self._to_model(tensor) for name, tensor in tensors.items() if tensor is not None
        }
        return self.model.get_image_features(**moved)

    def _to_model(self, tensor: Tensor) -> Tensor:
        dtype = self.dtype if tensor.is_floating_point() else None
        return tensor.to(self.device, dtype)

    def tower(self) -> Tower | str:
        """A family whose tower can be captured says how."""
        return f"no adapter says how the tower of {self.architecture} goes into a graph"

    def _crop_tower(self, size: tuple[int, int]) -> Tower:
        """A tower over crops of ``size``, by ``get_image_features``."""
        return CropTower(
            lambda pixels: self._features(pixel_values=pixels).pooler_output,
            size,
            self.dtype,
            self.device,
        )

    def encode(self, artifacts: Sequence[Artifact]) -> list[Tensor]:
        """One tower call per image; families whose tower batches override it."""
        return [self.encode_one(a.tensors) for a in artifacts]

    def encode_one(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """One image to ``[rows, W]``; for families that encode images one by one."""
        raise NotImplementedError


def same_shape_groups(artifacts: Sequence[Artifact], name: str, axis: int) -> list[list[int]]:
    """Indices of artifacts whose tensor ``name`` agrees in its dimensions from ``axis`` on."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, artifact in enumerate(artifacts):
        groups.setdefault(tuple(artifact.tensors[name].shape[axis:]), []).append(index)
    return list(groups.values())
