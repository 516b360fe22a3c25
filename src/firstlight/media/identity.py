"""What makes two pictures of two requests one artifact: content, processor and options.

Paths, URLs and times never do: the same address can bring another picture tomorrow.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.artifact import Artifact
from firstlight.media.canonical import canonical
from firstlight.media.digest import digest_of
from firstlight.media.orientation import keep_orientation

ENVELOPE: Final = frozenset(
    {"type", "format", "url", "path", "image", "video", "audio", "content_hash"}
)
"""Fields of a message's part that say where its content is; all others are options."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The content of one source at one moment; what happens to the source later does not matter.

    Attributes:
        data: a file's bytes, or an image that nobody else holds.
        digest: SHA-256 of it, ``sha256:<hex>``.
        check: its size and CRC-32, which tells apart what came to one digest by a fault.
    """

    data: bytes | Image.Image
    digest: str
    check: str


def take_snapshot(data: bytes | Image.Image) -> Snapshot:
    """The snapshot of bytes, which are not decoded, or of an image, which is loaded and copied.

    Raises:
        MediaError: the image cannot be loaded: what is broken has no identity.
    """
    if isinstance(data, bytes):
        return Snapshot(data, digest_of(data), f"{len(data)}.{zlib.crc32(data):08x}")
    try:
        copied = keep_orientation(data.copy(), data)
    except Exception as error:  # lazily opened files fail here, in any way
        reason = str(error) or type(error).__name__
        raise MediaError(f"the image is truncated or corrupt: {reason}") from error
    check = f"{copied.width}x{copied.height}.{zlib.crc32(copied.tobytes()):08x}"
    return Snapshot(copied, digest_of(copied), check)


def request_options(
    fields: Mapping[str, object], defaults: Mapping[str, object]
) -> dict[str, object]:
    """The options of one picture that can make its artifact another one.

    Dropped are the envelope, what is None or empty, and what equals its declared default, type
    included. Options that nobody declared stay: at worst an artifact is made twice.

    Raises:
        TypeError: a value without a canonical form.
    """
    default_forms = {name: canonical(value) for name, value in defaults.items()}
    return {
        name: value
        for name, value in fields.items()
        if name not in ENVELOPE
        and not _is_empty(value)
        and canonical(value) != default_forms.get(name)
    }


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    """The identity of an artifact.

    Attributes:
        name: ``sha256:<hex>`` over everything that decides the artifact.
        digest: of the content.
        check: of the content, from its snapshot; empty where a caller vouches for a digest and
            nothing was read.
    """

    name: str
    digest: str
    check: str = ""

    def __str__(self) -> str:
        return f"{self.name}/{self.check}"

    def matches(self, artifact: Artifact) -> bool:
        """Whether an artifact is what this key means."""
        if artifact.digest != self.digest:
            return False
        if not self.check:
            return artifact.key.startswith(f"{self.name}/")
        return artifact.key == str(self)


def artifact_key(
    digest: str, check: str, modality: str, fingerprint: str, options: Mapping[str, object]
) -> ArtifactKey:
    """The key of one artifact.

    Args:
        digest, check: of the content.
        modality: ``image``, ``video``, ...
        fingerprint: of the processor, its version and its settings.
        options: from :func:`request_options`.

    Raises:
        TypeError: an option without a canonical form.
    """
    name = fingerprint_of(
        {
            "digest": digest,
            "modality": modality,
            "processor": fingerprint,
            "options": dict(options),
        }
    )
    return ArtifactKey(name, digest, check)


def fingerprint_of(facts: Mapping[str, object]) -> str:
    """``sha256:<hex>`` of the canonical form of some facts; TypeError where one has none."""
    return "sha256:" + hashlib.sha256(canonical(dict(facts)).encode()).hexdigest()


def _is_empty(value: object) -> bool:
    """None and empty containers; 0 and False say something."""
    return value is None or (
        isinstance(value, str | bytes | list | tuple | dict | set) and not value
    )
