"""Reads pictures from the file system: any path for its own user, or only what a folder holds."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from firstlight.errors import ConfigError, MediaError
from firstlight.media.brief import brief, limited

_FILE_URL = re.compile(
    r"file:(?://(?P<host>[^/]*)(?=/)|(?!//))(?P<path>/.*)", re.IGNORECASE | re.DOTALL
)
# No waiting for whoever writes into a pipe, and no controlling terminal.
_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
# On Linux a folder on the way need not be readable.
_FOLDER_FLAGS: Final = _FLAGS | os.O_DIRECTORY | getattr(os, "O_PATH", 0)


def path_of_file_url(url: str) -> str | None:
    """The path that a ``file:`` address names on this machine (RFC 8089), None if it names none."""
    match = _FILE_URL.fullmatch(url)
    if match is None or (match["host"] or "").lower() not in ("", "localhost"):
        return None
    return unquote(match["path"], errors="surrogateescape")


def read_file(path: Path, max_bytes: int) -> bytes:
    """The bytes of a regular file; ``~`` is the user's home.

    Raises:
        MediaError: missing, no regular file, unreadable or too large; the path and why are named.
    """
    try:
        path = path.expanduser()
        if not stat.S_ISREG(path.stat().st_mode):
            raise MediaError(f"{brief(path)} is no regular file")
        with path.open("rb") as file:
            # One byte more than allowed tells a file that grew since from one that fits.
            return limited(file.read(max_bytes + 1), max_bytes)
    except FileNotFoundError as error:
        raise MediaError(f"no such picture: {brief(path)}") from error
    except (OSError, ValueError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(f"the picture {brief(path)} cannot be read: {reason}") from error


class MediaRoot:
    """The folder that a server's pictures lie in.

    What is outside, missing, unreadable or no regular file has one message, so that nobody learns
    what the machine holds.

    Raises:
        ConfigError: the folder is not there.
    """

    def __init__(self, root: Path) -> None:
        self._root = os.path.realpath(root)
        if not os.path.isdir(self._root):
            raise ConfigError(f"file_root = {str(root)!r} is no folder")

    def read(self, name: str, max_bytes: int) -> bytes:
        """The bytes of a file in the folder; a relative name starts there.

        Raises:
            MediaError: one message for all that cannot be had, and one for too many bytes.
        """
        refused = MediaError("there is no such picture among those that may be read")
        try:
            # Looks at links and names only; nothing is opened.
            real = os.path.realpath(os.path.join(self._root, name), strict=True)
            inside = os.path.commonpath((self._root, real)) == self._root
        except (OSError, ValueError):  # ValueError: a NUL, or text that is no name
            inside = False
        if not inside:
            raise refused
        parts = Path(real).relative_to(self._root).parts
        try:
            with os.fdopen(self._open(parts), "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return limited(file.read(max_bytes + 1), max_bytes)
        except OSError:
            pass
        raise refused

    def _open(self, parts: tuple[str, ...]) -> int:
        """Opens step by step from the folder, following no link.

        A link that was put in a part's place after the path was resolved is an error, not a way
        out.
        """
        found = os.open(self._root, _FOLDER_FLAGS)
        for i, part in enumerate(parts):
            folder = found
            try:
                found = os.open(
                    part, _FOLDER_FLAGS if i + 1 < len(parts) else _FLAGS, dir_fd=folder
                )
            finally:
                os.close(folder)
        return found
