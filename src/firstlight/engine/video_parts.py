"""The parts of messages that are videos."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from firstlight.engine.refusal import check_known, wrong
from firstlight.errors import RequestError

URL_TYPES: Final = ("video_url", "input_video")
TYPES: Final = (*URL_TYPES, "video")
URL_SCHEMES: Final = ("data:", "http:", "https:", "file:")
_FIELDS: Final = ("video", "path", "url")
_KNOWN: Final = (
    *_FIELDS, "type", "video_url", "fps", "num_frames", "uuid", "cache_control",
    "prompt_cache_breakpoint",
)  # fmt: skip
_REFUSED: Final = (
    "detail", "content_hash", "nframes", "sample_fps", "min_frames", "max_frames", "video_start",
    "video_end", "min_pixels", "max_pixels", "total_pixels", "resized_height", "resized_width",
)  # fmt: skip
"""What others take beside a video, or pictures do: to leave it out in silence would mislead."""


@dataclass(frozen=True, slots=True)
class VideoSource:
    """A video as a request names it, before anything is read.

    Attributes:
        video: a tuple of frames, each as a picture is given, or a file as a picture's is given.
        options: ``fps`` and ``num_frames``, where the request says them.
        where: its place in the request, for messages.
    """

    video: object
    options: Mapping[str, object] = field(default_factory=dict)
    where: str = "the video"


def video_source(part: Mapping[str, Any], where: str) -> VideoSource:
    """The video of a part whose type is one of ``TYPES``.

    ``fps`` of a list says how many frames there are a second; of a file, how many are taken.

    Raises:
        RequestError: with the place, the field, its value and what is accepted.
    """
    if part.get("type") in URL_TYPES:
        return _from_url(part, where)
    given = [name for name in _FIELDS if part.get(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise RequestError(
            f"{where} must have one of the fields {', '.join(_FIELDS)}; it has {found}"
        )
    options = _options(part, where)
    where = f"{where}.{given[0]}"
    video = part[given[0]]
    if isinstance(video, list | tuple):
        if not video:
            raise wrong(where, video, "a list of at least one frame, or a file")
        video = tuple(video)
    return VideoSource(video, options, where)


def bare_video(value: object, where: str) -> VideoSource:
    """The video of a raw prompt: a list of frames, a file, or what a part of a message says.

    Raises:
        RequestError: as :func:`video_source`.
    """
    part = value if isinstance(value, Mapping) else {"video": value}
    return video_source({"type": "video", **part}, where)


def _from_url(part: Mapping[str, Any], where: str) -> VideoSource:
    """``video_url`` as an object or a string, as for pictures."""
    value = part.get("video_url")
    fields = {**part, **value} if isinstance(value, Mapping) else part
    options = _options(fields, where)
    where = f"{where}.video_url"
    url = value
    if isinstance(value, Mapping):
        url, where = value.get("url"), f"{where}.url"
    if not isinstance(url, str) or not url.lstrip().lower().startswith(URL_SCHEMES):
        # A path here would let whoever writes a URL name files of this machine.
        raise wrong(where, url, "a URL of data:, http:, https: or file:")
    return VideoSource(url, options, where)


def _options(fields: Mapping[str, Any], where: str) -> dict[str, object]:
    for name in _REFUSED:
        if fields.get(name) is not None:
            raise RequestError(
                f"{where}.{name} is not supported for a video; accepted: fps and num_frames"
            )
    check_known(fields, _KNOWN, where)
    options: dict[str, object] = {}
    fps, num_frames = fields.get("fps"), fields.get("num_frames")
    if fps is not None:
        number = isinstance(fps, int | float) and not isinstance(fps, bool)
        if not number or not (math.isfinite(fps) and fps > 0):
            raise wrong(f"{where}.fps", fps, "a number above 0")
        options["fps"] = float(fps)
    if num_frames is not None:
        if not isinstance(num_frames, int) or isinstance(num_frames, bool) or num_frames < 1:
            raise wrong(f"{where}.num_frames", num_frames, "an int from 1")
        options["num_frames"] = num_frames
    return options
