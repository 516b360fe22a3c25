"""Small videos, and rules for them, for tests."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from PIL import Image

from firstlight.models.adapters.video_rules import Qwen2VideoRules, Qwen3VideoRules
from tests.pictures import picture

SETTINGS: dict[str, Any] = {
    "patch_size": 8,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "size": {"shortest_edge": 16 * 16, "longest_edge": 16 * 16 * 64},
    "image_mean": [0.4, 0.5, 0.6],
    "image_std": [0.3, 0.25, 0.2],
}
"""With limits that leave small frames as they are."""

RULES = Qwen3VideoRules.of(SETTINGS)
PLAIN_RULES = Qwen2VideoRules.of(SETTINGS)


def clip(n: int, width: int = 48, height: int = 32, seed: int = 0) -> list[Image.Image]:
    """``n`` frames, no two alike."""
    return [picture(width, height, seed=seed + i) for i in range(n)]


def image_processor() -> Any:
    """transformers' image processor of these models."""
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    return Qwen2VLImageProcessorPil()


def png(image: Image.Image) -> bytes:
    """The picture as a PNG file."""
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def movie(
    frames: Sequence[Image.Image],
    fps: int | Fraction = 10,
    *,
    codec: str = "png",
    container: str = "mov",
    pixels: str = "rgb24",
    turned: int | None = None,
) -> bytes:
    """A video file of the frames; with the default codec without loss.

    Args:
        turned: degrees to the left that a player turns it by.
    """
    import av

    file = io.BytesIO()
    with av.open(file, "w", format=container) as out:
        stream: Any = out.add_stream(codec, rate=fps)
        stream.width, stream.height = frames[0].size
        stream.pix_fmt = pixels
        if turned is not None:
            stream.set_display_rotation(turned)
        for frame in frames:
            out.mux(stream.encode(av.VideoFrame.from_image(frame)))
        out.mux(stream.encode())
    return file.getvalue()


def written(path: Path, data: bytes) -> Path:
    """The file, holding the data."""
    path.write_bytes(data)
    return path
