"""What the processor made of one image, independent of any prompt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Artifact:
    """Processor tensors of one image.

    Attributes:
        tensors: by the processor's own names (``pixel_values``, ``image_grid_thw``, ...), on the
            CPU, with the batch axis that it returned for one image.
        size: width and height of the upright image in pixels.
        digest: identity of the image, ``sha256:<hex>``; of the content alone, not of the processor.
    """

    tensors: Mapping[str, Tensor]
    size: tuple[int, int]
    digest: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", MappingProxyType(dict(self.tensors)))

    @property
    def nbytes(self) -> int:
        """Bytes that the tensors keep alive."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors.values())
