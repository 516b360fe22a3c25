"""Reads what a caller names as a picture: a path, bytes, an image, a data URL, an address."""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from PIL import Image

from firstlight.errors import MediaError
from firstlight.media.brief import limited
from firstlight.media.fetch import Fetcher
from firstlight.media.files import MediaRoot, path_of_file_url, read_file
from firstlight.media.policy import LOCAL, FetchPolicy

ACCEPTED: Final = "a path, bytes, a PIL image, or a base64 data URL"
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):", re.ASCII)
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_ALPHABET = re.compile(rb"[A-Za-z0-9+/]*=*")


class SourceLoader:
    """Reads what one policy accepts; threads may share it.

    Args:
        policy: what may be read.
        fetcher: for web addresses; None makes one where the policy fetches at all.
    """

    def __init__(self, policy: FetchPolicy, fetcher: Fetcher | None = None) -> None:
        self._policy = policy
        self._root = None if policy.file_root is None else MediaRoot(policy.file_root)
        if fetcher is None and policy.fetches:
            fetcher = Fetcher(policy)
        self._fetcher = fetcher
        # Who asks over HTTP can send no object of Python, and no path that is read.
        self._accepted = ACCEPTED if policy.any_path else "a base64 data URL"

    def load(self, source: object) -> bytes | Image.Image:
        """The encoded bytes of a picture, or the image itself if it is one already.

        Args:
            source: ``str`` (path, data URL, file or web address), ``Path``, ``bytes`` or a PIL
                image.

        Raises:
            MediaError: unknown kind, not accepted, unreadable, malformed, or too large. A data URL,
                a query or a fragment is never repeated in the message.
        """
        limit = self._policy.max_bytes
        if isinstance(source, Image.Image):
            return source
        if isinstance(source, bytes | bytearray | memoryview):
            return limited(bytes(source), limit)
        if isinstance(source, Path):
            return self._file(str(source))
        if not isinstance(source, str):
            raise MediaError(f"a picture cannot be a {type(source).__name__}; accepted: {ACCEPTED}")
        text = source.strip()
        if not text:
            raise MediaError(f"the picture is an empty string; accepted: {self._accepted}")
        scheme = _SCHEME.match(text)
        kind = scheme[1].lower() if scheme else ""
        if kind == "data":
            return limited(decode_data_url(text), limit)
        if kind in ("http", "https"):
            return self._web(text)
        if kind == "file":
            return self._file(path_of_file_url(text))
        if kind and "://" in text[:32]:
            raise MediaError(f"{kind}: addresses are not accepted; give {self._accepted}")
        return self._file(source)

    def _web(self, url: str) -> bytes:
        if self._fetcher is None:
            raise MediaError(
                "pictures from web addresses are not accepted: no domain is allowed, "
                f"allowed_media_domains names those that are; accepted: {self._accepted}"
            )
        return self._fetcher.fetch(url)

    def _file(self, path: str | None) -> bytes:
        """A path, or None for an address that names no path here."""
        limit = self._policy.max_bytes
        if self._root is not None:
            return self._root.read("\0" if path is None else path, limit)
        if not self._policy.any_path:
            raise MediaError(
                "pictures from the server's file system are not accepted: allowed_media_root names "
                f"no folder; accepted: {self._accepted}"
            )
        if path is None:
            raise MediaError("the file: address names no path of this machine")
        return read_file(Path(path), limit)


def load_image(source: object, policy: FetchPolicy = LOCAL) -> bytes | Image.Image:
    """:meth:`SourceLoader.load` for a single use; by default of a caller who owns the machine."""
    return SourceLoader(policy).load(source)


def is_web(source: object) -> bool:
    """Whether reading a source means to wait for another machine."""
    if not isinstance(source, str):
        return False
    scheme = _SCHEME.match(source[:64].lstrip())
    return scheme is not None and scheme[1].lower() in ("http", "https")


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
