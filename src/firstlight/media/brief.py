"""How messages speak of a picture that they must not repeat, and the one check of its bytes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from firstlight.errors import MediaError

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def brief(source: object, limit: int = 80) -> str:
    """A source as an error message may name it: short, without an image's data or a token."""
    if isinstance(source, str):
        text = source.lstrip()
        scheme = text[:6].lower()
        if scheme.startswith("data:"):
            return f"a data URL of {len(source)} characters"
        if scheme.startswith("http") or (_SCHEME.match(text) and not scheme.startswith("file:")):
            return f"an address at {_host(text)}"
        return repr(source if len(source) <= limit else source[: limit - 3] + "...")
    if isinstance(source, Path):
        return brief(str(source), limit)
    if isinstance(source, bytes | bytearray | memoryview):
        return f"{len(source)} bytes"
    return f"a {type(source).__name__}"


def limited(data: bytes, max_bytes: int) -> bytes:
    """The bytes, if they are not too many.

    Raises:
        MediaError: naming the limit.
    """
    if len(data) > max_bytes:
        raise MediaError(f"the picture is larger than {max_bytes} bytes, the most that is accepted")
    return data


def _host(url: str) -> str:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    return repr(host[:80]) if host else "an unknown host"
