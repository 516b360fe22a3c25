"""What the processor made of one image or video, independent of any prompt."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

import torch
from torch import Tensor

IMAGE: Final = "image"
VIDEO: Final = "video"


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """Processor tensors of one image or video.

    Attributes:
        tensors: by the processor's own names (``pixel_values``, ``image_grid_thw``, ...), on the
            CPU, with the batch axis that it returned for one image.
        size: width and height of the upright image, or of each frame, in pixels.
        digest: identity of the source, ``sha256:<hex>``; of the content alone, not of the
            processor.
        key: an :class:`~firstlight.media.identity.ArtifactKey` as text: of the content and of all
            that was done to it; empty for an artifact that no cache knows.
        modality: ``IMAGE`` or ``VIDEO``.
    """

    tensors: Mapping[str, Tensor]
    size: tuple[int, int]
    digest: str
    key: str = ""
    modality: str = IMAGE
    _identity: str = field(default="", init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))

    @property
    def identity(self) -> str:
        """What caches of anything that was computed from the tensors are keyed by.

        The key, which costs nothing. Without one: the digest of the content, the size, and a
        checksum of the tensors. By either the same file under other options of the processor is
        another input of the encoder, and content that came to an equal digest by a fault upstream
        is still told apart.
        """
        if self.key:
            return self.key
        if not self._identity:
            width, height = self.size
            text = f"{self.digest}/{width}x{height}/{_checksum(self.tensors):08x}"
            # Two threads that meet here write the same string.
            object.__setattr__(self, "_identity", text)
        return self._identity

    @property
    def nbytes(self) -> int:
        """Bytes that the tensors keep alive."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors.values())


def _checksum(tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 over names, types, shapes and bytes; position-dependent, unlike a sum.

    The digest is what a forger would have to meet; this costs less than half as much.
    """
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name]
        total = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)} ".encode(), total)
        total = zlib.crc32(
            tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, total
        )
    return total
