"""Pictures to measure with, as files."""

from __future__ import annotations

import io

from firstlight.demo.synthetic import QUALITY, synthetic_picture
from firstlight.errors import MediaError
from firstlight.media.decode import accepted_formats


def encoded_square(side: int, kind: str, seed: int = 0) -> bytes:
    """A square picture as a file; the same at each call.

    Args:
        side: in pixels.
        kind: a format by Pillow's name, e.g. ``JPEG``.

    Raises:
        MediaError: a format that is not decoded here, or that Pillow cannot write.
    """
    kind = kind.upper()
    known = accepted_formats()
    if kind not in known:
        raise MediaError(f"{kind} pictures are not read here; accepted: {', '.join(known)}")
    image = synthetic_picture(side, side, seed)
    file = io.BytesIO()
    options = {"quality": QUALITY} if kind in ("JPEG", "WEBP", "AVIF") else {}
    try:
        image.save(file, kind, **options)
    except (OSError, KeyError, ValueError) as error:
        raise MediaError(f"a {kind} picture of {side} x {side} cannot be made: {error}") from error
    return file.getvalue()
