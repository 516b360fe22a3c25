"""Reads what a caller names as a picture: a path, bytes, an image, a data URL."""

from __future__ import annotations

import base64
import binascii
import re
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from PIL import Image

from firstlight.errors import MediaError

MAX_BYTES: Final = 64 * 1024 * 1024
ACCEPTED: Final = "a path, bytes, a PIL image, or a base64 data URL"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):", re.ASCII)
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_ALPHABET = re.compile(rb"[A-Za-z0-9+/]*=*")


def load_image(
    source: object, *, allow_paths: bool = True, max_bytes: int = MAX_BYTES
) -> bytes | Image.Image:
    """The encoded bytes of a picture, or the image itself if it is one already.

    Args:
        source: ``str`` (path or data URL), ``Path``, ``bytes`` or a PIL image.
        allow_paths: whether the file system may be read; a server says no.
        max_bytes: most bytes that are read.

    Raises:
        MediaError: unknown kind, unreadable file, malformed data URL, or too large. A data URL is
            never repeated in the message.
    """
    if isinstance(source, Image.Image):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return _limited(bytes(source), max_bytes)
    if isinstance(source, Path):
        return _read(source, allow_paths, max_bytes)
    if not isinstance(source, str):
        raise MediaError(f"a picture cannot be a {type(source).__name__}; accepted: {ACCEPTED}")
    text = source.strip()
    if not text:
        raise MediaError(f"the picture is an empty string; accepted: {ACCEPTED}")
    scheme = _SCHEME.match(text)
    kind = scheme[1].lower() if scheme else ""
    if kind == "data":
        return _limited(decode_data_url(text), max_bytes)
    if kind in ("http", "https"):
        raise MediaError(
            f"pictures from {kind} addresses are not supported yet ({brief(text)}); "
            f"accepted: {ACCEPTED}"
        )
    if (kind and "://" in text[:32]) or kind == "file":
        raise MediaError(f"{kind}: addresses are not accepted ({brief(text)}); give {ACCEPTED}")
    return _read(Path(source), allow_paths, max_bytes)


def decode_data_url(url: str) -> bytes:
    """The bytes of ``data:[type][;parameter];base64,<payload>`` (RFC 2397).

    The media type is ignored: the bytes say what they are. The payload may use the standard or the
    URL-safe alphabet (RFC 4648, sections 4 and 5), lack its padding, and hold line breaks. Anything
    else is an error, because a decoder that skips unknown characters returns other bytes.

    Raises:
        MediaError: naming the defect.
    """
    header, comma, payload = url.strip().partition(",")
    if not comma:
        raise MediaError("the data URL has no comma between its header and its data")
    if not header.lower().rstrip().endswith(";base64"):
        raise MediaError("the data URL is not base64: its header must end with ';base64'")
    raw = unquote_to_bytes(payload)
    if not raw.strip():
        raise MediaError("the data URL holds no data")
    # Line breaks come from mail tools. A space inside may have been a '+' that a form decoded.
    data = re.sub(rb"[\r\n\t]+", b"", raw.strip())
    if b" " in data:
        raise MediaError(
            "the data URL's base64 holds a space; was it a '+' that got decoded as a form's space?"
        )
    data = data.translate(_URL_SAFE)
    if not _ALPHABET.fullmatch(data):
        bad = re.sub(rb"[A-Za-z0-9+/=]", b"", data)[:1] or b"="
        raise MediaError(f"the data URL's base64 holds {bad.decode('latin-1')!r} where it must not")
    body = data.rstrip(b"=")
    if len(body) % 4 == 1:
        raise MediaError(f"the data URL's base64 is cut off: {len(body)} characters are no length")
    try:
        return base64.b64decode(body + b"=" * (-len(body) % 4), validate=True)
    except binascii.Error as error:
        raise MediaError(f"the data URL's base64 is malformed: {error}") from error


def brief(source: object, limit: int = 80) -> str:
    """A source as an error message may name it: short, and without an image's data."""
    if isinstance(source, str):
        if source.lstrip()[:5].lower() == "data:":
            return f"a data URL of {len(source)} characters"
        return repr(source if len(source) <= limit else source[: limit - 3] + "...")
    if isinstance(source, Path):
        return brief(str(source), limit)
    if isinstance(source, bytes | bytearray | memoryview):
        return f"{len(source)} bytes"
    return f"a {type(source).__name__}"


def _read(path: Path, allow_paths: bool, max_bytes: int) -> bytes:
    if not allow_paths:
        raise MediaError("pictures from the server's file system are not accepted")
    try:
        path = path.expanduser()
        if not stat.S_ISREG(path.stat().st_mode):
            raise MediaError(f"{brief(path)} is no regular file")
        with path.open("rb") as file:
            # One byte more than allowed tells a file that grew since from one that fits.
            return _limited(file.read(max_bytes + 1), max_bytes)
    except FileNotFoundError as error:
        raise MediaError(f"no such picture: {brief(path)}") from error
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(f"the picture {brief(path)} cannot be read: {reason}") from error


def _limited(data: bytes, max_bytes: int) -> bytes:
    if len(data) > max_bytes:
        raise MediaError(f"the picture is larger than {max_bytes} bytes, the most that is accepted")
    return data
