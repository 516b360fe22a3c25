"""Equal but faster modules for transformers' decoder layers, each checked before it is put in."""

from __future__ import annotations

from firstlight.models.fuse.decoder import fuse_decoder
from firstlight.models.fuse.kit import Kit, NativeLinear, NativeNorm
from firstlight.models.fuse.linear import PackedLinear
from firstlight.models.fuse.model import fuse_model
from firstlight.models.fuse.patches import PatchLinear, fuse_patches
from firstlight.models.fuse.report import FuseReport
from firstlight.models.fuse.tail import fuse_tail

__all__ = [
    "FuseReport",
    "Kit",
    "NativeLinear",
    "NativeNorm",
    "PackedLinear",
    "PatchLinear",
    "fuse_decoder",
    "fuse_model",
    "fuse_patches",
    "fuse_tail",
]
