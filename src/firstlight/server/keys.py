"""API keys: where they come from, and comparing them so that time tells nothing."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from pathlib import Path

from firstlight.errors import ConfigError


class KeyRing:
    """The keys that open the server; only their digests are kept. Empty: it is open to all."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = tuple(_digest(key) for key in dict.fromkeys(keys))

    def __bool__(self) -> bool:
        return bool(self._digests)

    def __len__(self) -> int:
        return len(self._digests)

    def opens(self, key: str) -> bool:
        """Whether ``key`` is one of them. Takes equally long whichever it is, and if it is none."""
        given = _digest(key)
        found = False
        for digest in self._digests:
            found |= hmac.compare_digest(given, digest)
        return found


def read_keys(path: Path) -> tuple[str, ...]:
    """The keys of a file, one a line; empty lines and ``#`` comments are skipped.

    Raises:
        ConfigError: it cannot be read or holds no key; its contents are never shown.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        kind = type(error).__name__
        raise ConfigError(f"api_key_file = {str(path)!r} cannot be read ({kind})") from error
    keys = tuple(s for line in lines if (s := line.strip()) and not s.startswith("#"))
    if not keys:
        raise ConfigError(f"api_key_file = {str(path)!r} holds no key")
    return keys


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()
