"""What a request brings, and what it gets for it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field

from firstlight.core.timing import Outcome
from firstlight.errors import ArtifactError, MediaError
from firstlight.media.artifact import IMAGE, Artifact


@dataclass(frozen=True, slots=True, eq=False)
class MediaItem:
    """One picture or video as a request names it.

    Attributes:
        source: path, bytes, PIL image, data URL or address; for a video also a tuple of them.
        options: what its part says beside its source, e.g. ``{"detail": "low"}``.
        content_hash: the digest that the caller says the content has.
        where: its place in the request, for messages.
        modality: ``IMAGE`` or ``VIDEO``.
    """

    source: object
    options: Mapping[str, object] = field(default_factory=dict)
    content_hash: str | None = None
    where: str = "the picture"
    modality: str = IMAGE


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One item's artifact.

    Attributes:
        outcome: how it was come by.
        read_s: seconds until its content was read and hashed; 0 for a hit that a caller vouched
            for.
        decode_s, process_s: seconds of making it, where it was made for this request.
        options: what this request changed for the processor; empty where its ``detail`` is without
            effect.
    """

    artifact: Artifact
    outcome: Outcome
    read_s: float = 0.0
    decode_s: float = 0.0
    process_s: float = 0.0
    options: Mapping[str, object] = field(default_factory=dict)


def placed(item: MediaItem, error: BaseException) -> BaseException:
    """One item's error with its place, a new object for each of those that wait for it.

    What was not foreseen becomes an ArtifactError that names its type.
    """
    new: BaseException
    if isinstance(error, MediaError | ArtifactError):
        new = type(error)(f"{item.where}: {error}")
    elif isinstance(error, CancelledError):
        new = CancelledError()
    else:
        new = ArtifactError(f"{item.where}: preparing it failed: {type(error).__name__}")
    new.__cause__ = error
    return new
