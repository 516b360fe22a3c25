"""Frames of animated pictures (GIF, WebP, PNG), which Pillow reads on every machine."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Final

from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.colour import WHITE, Colour
from firstlight.media.decode import decode_image
from firstlight.media.digest import digest_of
from firstlight.media.parts import check_parts
from firstlight.media.video import DecodedVideo, VideoLimits, VideoOptions, VideoRules
from firstlight.media.video_frames import Fitter

FORMATS: Final = ("GIF", "WEBP", "PNG")
UNTIMED_S: Final = 0.1
"""How long a frame stands that does not say it, as browsers have it."""

_FRAME: Final = "a frame"


def is_animation(data: bytes) -> bool:
    """Whether bytes begin like a file of one of ``FORMATS``."""
    webp = data[:4] == b"RIFF" and data[8:12] == b"WEBP"
    return webp or data.startswith((b"GIF87a", b"GIF89a", b"\x89PNG\r\n\x1a\n"))


def decode_animation(
    data: bytes,
    rules: VideoRules,
    options: VideoOptions | None = None,
    limits: VideoLimits | None = None,
    digest: str = "",
    background: Colour = WHITE,
) -> DecodedVideo:
    """Decode the frames of an animated picture that the rules take.

    Frames that stand for unlike times count as if all stood for their mean.

    Args:
        digest: of the bytes, where it is known already.
        background: what shows through transparent pixels.

    Raises:
        MediaError: fps and num_frames are both given, a single picture, broken, or over a limit.
    """
    options, limits = options or VideoOptions(), limits or VideoLimits()
    options.check_file()
    shown = [seconds for _, seconds in _frames(data, limits)]
    total, fps = len(shown), len(shown) / sum(shown)
    if total == 1:
        raise MediaError("the video is a single picture; send it as one")
    indices = rules.sample(total, fps, options.fps, options.num_frames)
    fitter, wanted = Fitter(rules, limits, len(indices)), frozenset(indices)
    found = []
    for index, (frame, _) in enumerate(_frames(data, limits)):
        if index in wanted:
            upright = decode_image(frame.copy(), limits.image, _FRAME, background).pixels
            found.append(fitter.fit(upright, index))
    digest = digest or digest_of(data)
    return DecodedVideo(tuple(found), fitter.source_size, tuple(indices), total, fps, digest)


def _frames(data: bytes, limits: VideoLimits) -> Iterator[tuple[Image.Image, float]]:
    """Every frame, decoded, and the seconds that it stands; the image is the same object."""
    check_parts(data)
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            limits.image.check(*image.size, len(data))
            for index in range(limits.source_frames + 1):
                try:
                    image.seek(index)
                except EOFError:
                    return
                limits.check_source(index + 1, *image.size)
                image.load()
                seconds = float(image.info.get("duration") or 0) / 1000
                yield image, seconds if seconds > 0 else UNTIMED_S
    except MediaError:
        raise
    except Exception as error:  # decoders of damaged files raise nearly anything
        reason = str(error) or type(error).__name__
        raise MediaError(f"the video is truncated or corrupt: {reason}") from error
