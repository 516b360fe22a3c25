"""From what was typed to a chat message."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path

from firstlight.core.text import check_text
from firstlight.errors import MediaError

_PICTURE = re.compile(r".*\.(png|jpe?g|webp|gif|bmp|tiff?|avif)", re.IGNORECASE)
_WEB = re.compile(r"\s*https?:", re.IGNORECASE | re.ASCII)
_ADDRESS = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://", re.ASCII)
# A path may be quoted, or have its spaces escaped as terminals do when a file is dropped on them.
_WORD = re.compile(r"""(?<!\S)(?:'([^']+)'|"([^"]+)"|((?:\\.|[^\s\\])+?)([,;:?!]*(?!\S)))""")


def system_messages(system: str | None) -> list[Mapping[str, object]]:
    """The turn of ``--system``, if it was given.

    Raises:
        RequestError: it is no text.
    """
    return [{"role": "system", "content": check_text(system, "--system")}] if system else []


def user_message(
    text: str, images: Sequence[str], detail: str = "auto", videos: Sequence[str] = ()
) -> dict[str, object]:
    """One user turn: the images first, then the videos, then the text."""
    asked = {} if detail == "auto" else {"detail": detail}
    parts: list[dict[str, object]] = [
        {"type": "image", "image": image, **asked} for image in images
    ]
    parts += [{"type": "video", "video": video} for video in videos]
    return {"role": "user", "content": [*parts, {"type": "text", "text": text}]}


def accept_any_bytes() -> None:
    """Let standard input give bytes that are no text as surrogates, which are refused by name.

    Otherwise reading them raises, and what was read along with them is lost.
    """
    if isinstance(sys.stdin, TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")


def check_image(image: str, *, fetches: bool = False) -> str:
    """The image's path, if there is such a file; see :func:`check_media`."""
    return check_media(image, "picture", fetches=fetches)


def check_media(image: str, noun: str, *, fetches: bool = False) -> str:
    """The path of a picture or video, if there is such a file; before a model is loaded.

    Args:
        noun: what it is, for messages.
        fetches: whether it may be fetched; from where is found out when it is.

    Raises:
        MediaError: there is no such file, it is a folder, or an address that is not accepted.
    """
    if image.startswith("data:"):
        return image
    if not image.strip():
        raise MediaError(f"the path of the {noun} is empty")
    if _WEB.match(image):
        if fetches:
            return image
        raise MediaError(
            f"{noun}s from web addresses are not accepted: no domain is allowed; "
            "--allowed-media-domains names those that are"
        )
    if _ADDRESS.match(image):
        from firstlight.media.source import load_image  # imports torch

        load_image(image)  # refuses it in its own words, but for a file
        return image
    path = Path(image).expanduser()
    if not path.exists():
        raise MediaError(f"there is no {noun} {image}")
    if not path.is_file():
        raise MediaError(f"{image} is not a file")
    return str(path)


def check_video(video: str, *, fetches: bool = False) -> str:
    """The video's path, as :func:`check_image` does it for a picture."""
    return check_media(video, "video", fetches=fetches)


def split_images(line: str) -> tuple[str, list[str]]:
    """The text of a typed line and the picture files that it names.

    A word counts as a picture only if it ends like one and the file exists; everything else stays
    text, so that "what is a .png?" stays a question.
    """
    images: list[str] = []

    def take(match: re.Match[str]) -> str:
        word = match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3])
        if _PICTURE.fullmatch(word) and Path(word).expanduser().is_file():
            images.append(str(Path(word).expanduser()))
            return match[4] or ""
        return match[0]

    text = _WORD.sub(take, line)
    return " ".join(text.split()) if images else line.strip(), images
