"""Equal but faster modules for transformers' decoder layers, each checked before it is put in."""

from __future__ import annotations

from firstlight.models.fuse.decoder import FuseReport, fuse_decoder
from firstlight.models.fuse.linear import PackedLinear
from firstlight.models.fuse.patches import PatchLinear, fuse_patches

__all__ = ["FuseReport", "PackedLinear", "PatchLinear", "fuse_decoder", "fuse_patches"]
