"""The identity of an image: SHA-256 of what the decoder is given.

Never a path, a URL, a time or an object's address, and always all of the content: pictures of one
renderer share long headers.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable

import numpy as np
import torch
from PIL import Image

from firstlight.media.orientation import orientation_of

_PREFIX = "sha256:"
_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")


def digest_of(data: object) -> str:
    """``sha256:<64 hex digits>`` of a file's bytes, a loaded image, an array or a tensor.

    An image hashes its mode, size, palette, transparency, orientation and pixels, an array its
    dtype, shape and bytes, each part with its length before it, so that no two of them share a byte
    stream. The kinds have separate domains: a file and the image decoded from it are different
    identities.

    Raises:
        TypeError: for anything else, and for arrays that hold objects instead of numbers.
    """
    if isinstance(data, bytes):
        return _PREFIX + hashlib.sha256(data).hexdigest()
    hashed = hashlib.sha256()
    for part in _parts(data):
        hashed.update(len(part).to_bytes(8, "little"))
        hashed.update(part)
    return _PREFIX + hashed.hexdigest()


def check_digest(text: object) -> str:
    """``text`` if it has the form of a digest; ValueError otherwise."""
    if not isinstance(text, str) or not _PATTERN.fullmatch(text):
        raise ValueError(
            f"{text!r} is no digest; it must be 'sha256:' and 64 lower-case hex digits"
        )
    return text


def _parts(data: object) -> Iterable[bytes]:
    if isinstance(data, Image.Image):
        return _image_parts(data)
    if isinstance(data, torch.Tensor):
        raw = data.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        return [b"torch-1", f"{data.dtype}{tuple(data.shape)}".encode(), raw.tobytes()]
    if isinstance(data, np.ndarray) and not data.dtype.hasobject:
        # In C order, as a copy of another layout has the same values.
        return [b"numpy-1", f"{data.dtype.str}{data.shape}".encode(), data.tobytes()]
    raise TypeError(f"a {type(data).__name__} has no digest")


def _image_parts(image: Image.Image) -> Iterable[bytes]:
    yield b"pil-image-1"
    yield image.mode.encode()
    yield f"{image.width}x{image.height}".encode()
    palette = image.palette
    yield b"" if palette is None else palette.mode.encode() + b":" + palette.tobytes()
    transparency = image.info.get("transparency")
    # Typed: the palette index 1 and the byte string b"1" are different transparencies.
    yield f"{type(transparency).__name__}:{transparency!r}".encode()
    yield str(orientation_of(image)).encode()
    yield image.tobytes()
