"""Frames of a video file, through PyAV where it is installed (the extra ``firstlight[video]``)."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module, metadata
from types import ModuleType
from typing import Any, Final, TypeVar

import numpy as np
from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.digest import digest_of
from firstlight.media.video import (
    UNKNOWN_FPS,
    DecodedVideo,
    VideoLimits,
    VideoOptions,
    VideoRules,
)
from firstlight.media.video_frames import Fitter

CONTAINERS: Final = ("mov", "mp4", "m4a", "3gp", "3g2", "mj2", "matroska", "webm", "avi", "mpegts",
                     "mpeg", "flv", "ogg")  # fmt: skip
"""Names of FFmpeg's readers that may open a file: none that follows a reference to another one,
as play lists do."""

_OPTIONS: Final = {
    "format_whitelist": ",".join(CONTAINERS),
    # The bytes are here; nothing else may be opened, whatever a file refers to.
    "protocol_whitelist": "none",
}
_T = TypeVar("_T")


def decoder_version() -> str:
    """What decodes files, for the identity of what is made of them; empty without PyAV.

    It is not loaded for this: most engines never see a file.
    """
    try:
        return metadata.version("av")
    except metadata.PackageNotFoundError:
        return ""


def decode_file(
    data: bytes,
    rules: VideoRules,
    options: VideoOptions | None = None,
    limits: VideoLimits | None = None,
    digest: str = "",
) -> DecodedVideo:
    """Decode the frames of a file that the rules take, upright.

    Args:
        digest: of the bytes, where it is known already.

    Raises:
        MediaError: PyAV is missing, fps and num_frames are both given, the bytes are no video that
            can be read, or one over a limit.
    """
    options, limits = options or VideoOptions(), limits or VideoLimits()
    av = _pyav()
    options.check_file()
    total, fps = _read(av, data, lambda container, stream: _facts(container, stream, limits))
    for counted in (total, None):
        if counted is None:
            # The file says that it has more frames than it has. What is there is sampled again.
            total = _read(av, data, _decodable)
            limits.check_frames(total)
        indices = rules.sample(total, fps, options.fps, options.num_frames)
        fitter = Fitter(rules, limits, len(indices))
        found = _read(av, data, partial(_frames, indices=indices, fitter=fitter, limits=limits))
        if len(found) == len(indices):
            size, digest = fitter.source_size, digest or digest_of(data)
            return DecodedVideo(tuple(found), size, tuple(indices), total, fps, digest)
    raise MediaError("the video is truncated or corrupt: its frames cannot be decoded")


def _pyav() -> ModuleType:
    try:
        av = import_module("av")
    except ImportError as error:
        raise MediaError(
            "reading a video file needs PyAV, which is not installed: "
            "pip install 'firstlight[video]'; or give the frames as a list of pictures"
        ) from error
    return av


def _read(av: ModuleType, data: bytes, work: Callable[[Any, Any], _T]) -> _T:
    """What ``work`` makes of the file's container and its first video stream."""
    try:
        with av.open(io.BytesIO(data), container_options=_OPTIONS) as container:
            if not container.streams.video:
                raise MediaError("the file holds no video")
            return work(container, container.streams.video[0])
    except MediaError:
        raise
    except Exception as error:  # decoders of damaged files raise nearly anything
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise MediaError(
            f"{len(data)} bytes (they begin with {data[:8]!r}) are no video that can be read: "
            f"{reason}"
        ) from error


def _facts(container: Any, stream: Any, limits: VideoLimits) -> tuple[int, float]:
    """Frames and frames a second; counted where the file does not say how many."""
    width, height = stream.codec_context.width, stream.codec_context.height
    limits.image.check(width, height)
    rate = stream.average_rate or stream.guessed_rate
    fps = float(rate) if rate else UNKNOWN_FPS
    total = stream.frames or sum(1 for packet in container.demux(stream) if packet.size)
    limits.check_source(total, width, height)
    return total, fps


def _decodable(container: Any, stream: Any) -> int:
    return sum(1 for _ in container.decode(stream))


def _frames(
    container: Any, stream: Any, indices: Sequence[int], fitter: Fitter, limits: VideoLimits
) -> list[Image.Image]:
    """The frames of these numbers, in order; fewer if the stream ends before."""
    found: list[Image.Image] = []
    wanted = frozenset(indices)
    for index, frame in enumerate(container.decode(stream)):
        if index in wanted:
            limits.image.check(frame.width, frame.height)
            turns = round(frame.rotation / 90) % 4  # to the left, as numpy turns
            pixels = np.rot90(frame.to_ndarray(format="rgb24"), turns)
            found.append(fitter.fit(Image.fromarray(np.ascontiguousarray(pixels), "RGB"), index))
        if len(found) == len(wanted):
            break
    return found
