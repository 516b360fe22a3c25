"""Messages as a server of OpenAI's API takes them: files of this machine go along as data URLs."""

from __future__ import annotations

import base64
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firstlight.cli.session import Message
from firstlight.errors import MediaError

_FIELDS = {"image": "image_url", "video": "video_url"}


def as_sent(message: Message) -> dict[str, Any]:
    """A message of a conversation as it is sent.

    Raises:
        MediaError: a file cannot be read.
    """
    content = message["content"]
    if isinstance(content, str) or not isinstance(content, list):
        return dict(message)
    return {**message, "content": [_part(part) for part in content]}


def _part(part: Mapping[str, Any]) -> dict[str, Any]:
    kind = part["type"]
    if kind not in _FIELDS:
        return dict(part)
    more = {"detail": part["detail"]} if "detail" in part else {}
    return {"type": _FIELDS[kind], _FIELDS[kind]: {"url": data_url(part[kind], kind), **more}}


def data_url(source: str, kind: str) -> str:
    """A file as a data URL; addresses, which the server fetches itself, as they are.

    Args:
        source: a path, or an address.
        kind: ``image`` or ``video``.

    Raises:
        MediaError: the file cannot be read.
    """
    if source.startswith(("data:", "http://", "https://")):
        return source
    path = Path(source)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MediaError(f"{source} cannot be read: {error.strerror or error}") from error
    guessed = mimetypes.guess_type(path.name)[0] or ""
    usual = {"image": "image/png", "video": "video/mp4"}[kind]
    media_type = guessed if guessed.startswith(f"{kind}/") else usual
    return f"data:{media_type};base64,{base64.b64encode(content).decode('ascii')}"
