"""Checks OpenAI-style messages and brings them into one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from firstlight.core.detail import DETAILS
from firstlight.core.text import check_text
from firstlight.engine import video_parts
from firstlight.engine.refusal import check_known, wrong
from firstlight.engine.tool_calls import calls_with_values
from firstlight.engine.video_parts import URL_SCHEMES, VideoSource, video_source
from firstlight.errors import RequestError
from firstlight.media.digest import check_digest

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
_TEXT_TYPES = ("text", "input_text", "output_text")
_URL_TYPES = ("image_url", "input_image")
PART_TYPES: Final = (*_TEXT_TYPES, *_URL_TYPES, "image", *video_parts.TYPES)
FIELDS: Final = (
    "role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning",
    "thinking",
)  # fmt: skip
"""What a chat template may read of a message."""
_UNREAD: Final = ("uuid", "cache_control", "prompt_cache_breakpoint")
"""What clients write beside a part, and what changes no answer."""
_TEXT_FIELDS: Final = ("type", "text", "annotations", "logprobs", *_UNREAD)
_URL_FIELDS: Final = ("type", "image_url", "detail", "content_hash", *_UNREAD)
# transformers' names for what an image part may bring
_IMAGE_FIELDS = ("image", "path", "url")

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ImageSource:
    """A picture as a request names it, before anything is read.

    Attributes:
        image: path, bytes, PIL image or data URL.
        detail: OpenAI's ``detail``, one of ``DETAILS``.
        where: its place in the request, for messages.
        content_hash: the digest that the caller says its content has.
    """

    image: object
    detail: str = "auto"
    where: str = "the picture"
    content_hash: str | None = None


MediaSource = ImageSource | VideoSource


def collect_media(
    messages: Sequence[Mapping[str, Any]],
) -> tuple[list[Message], list[MediaSource]]:
    """Messages in one form, and the pictures and videos in the order in which they stand in them.

    In that form ``content`` is always a list of ``{"type": "text", "text": str}``, ``{"type":
    "image"}`` and ``{"type": "video"}`` parts; other fields of a message are kept. Nothing is read
    or fetched.

    Raises:
        RequestError: with the message, the part, the field, its value and what is accepted.
    """
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Sequence):
        raise RequestError(f"messages must be a list of messages, not a {type(messages).__name__}")
    if not messages:
        raise RequestError("messages is empty; it must hold at least one message")
    media: list[MediaSource] = []
    return [_message(m, f"messages[{i}]", media) for i, m in enumerate(messages)], media


def _message(message: object, where: str, media: list[MediaSource]) -> Message:
    if not isinstance(message, Mapping):
        raise RequestError(
            f"{where} is a {type(message).__name__}; it must be a mapping with 'role' and 'content'"
        )
    check_known(message, (*FIELDS, "annotations"), where)
    role = message.get("role")
    if role not in ROLES:
        raise wrong(f"{where}.role", role, ", ".join(ROLES))
    content = message.get("content")
    if content is None and role == "assistant" and message.get("tool_calls"):
        content = ""
    for name, value in message.items():
        if name != "content":
            _check_texts(value, f"{where}.{name}")
    kept = {name: value for name, value in message.items() if name in FIELDS}
    if kept.get("tool_calls"):
        kept["tool_calls"] = calls_with_values(kept["tool_calls"], f"{where}.tool_calls")
    return {**kept, "content": _parts(content, f"{where}.content", media)}


def _check_texts(value: object, where: str) -> None:
    """Check all strings of a field that goes to the template as it is, e.g. ``tool_calls``."""
    if isinstance(value, str):
        check_text(value, where)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_texts(key, f"a key of {where}")
            _check_texts(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            _check_texts(item, f"{where}[{i}]")


def _parts(content: object, where: str, media: list[MediaSource]) -> list[Message]:
    if isinstance(content, str):
        return [{"type": "text", "text": check_text(content, where)}]
    if not isinstance(content, Sequence) or isinstance(content, bytes) or not content:
        raise wrong(where, content, "a string, or a list of at least one part")
    return [_part(part, f"{where}[{i}]", media) for i, part in enumerate(content)]


def _part(part: object, where: str, media: list[MediaSource]) -> Message:
    if not isinstance(part, Mapping):
        raise wrong(where, part, "a mapping with 'type'")
    kind = part.get("type")
    if kind in _TEXT_TYPES:
        check_known(part, _TEXT_FIELDS, where)
        text = part.get("text")
        if not isinstance(text, str):
            raise wrong(f"{where}.text", text, "a string")
        return {"type": "text", "text": check_text(text, f"{where}.text")}
    if kind in _URL_TYPES:
        media.append(_from_url(part, where))
    elif kind == "image":
        media.append(_from_image(part, where))
    elif kind in video_parts.TYPES:
        media.append(video_source(part, where))
        return {"type": "video"}
    else:
        raise wrong(f"{where}.type", kind, ", ".join(PART_TYPES))
    return {"type": "image"}


def _from_url(part: Mapping[str, Any], where: str) -> ImageSource:
    """``image_url`` as an object (OpenAI's chat form) or a string (its responses form)."""
    check_known(part, _URL_FIELDS, where)
    where = f"{where}.image_url"
    value = part.get("image_url")
    detail, digest = part.get("detail"), part.get("content_hash")
    url = value
    if isinstance(value, Mapping):
        check_known(value, ("url", "detail", "content_hash"), where)
        digest = value.get("content_hash", digest)
        url, detail, where = value.get("url"), value.get("detail", detail), f"{where}.url"
    if not isinstance(url, str) or not url.lstrip().lower().startswith(URL_SCHEMES):
        # A path here would let whoever writes a URL name files of this machine.
        raise wrong(where, url, "a URL of data:, http:, https: or file:")
    return ImageSource(url, _detail(detail, where), where, _digest(digest, where))


def _from_image(part: Mapping[str, Any], where: str) -> ImageSource:
    check_known(part, (*_IMAGE_FIELDS, "type", "detail", "content_hash", *_UNREAD), where)
    given = [name for name in _IMAGE_FIELDS if part.get(name) is not None]
    if len(given) != 1:
        found = " and ".join(given) or "none"
        raise RequestError(
            f"{where} must have one of the fields {', '.join(_IMAGE_FIELDS)}; it has {found}"
        )
    where = f"{where}.{given[0]}"
    digest = _digest(part.get("content_hash"), where)
    return ImageSource(part[given[0]], _detail(part.get("detail"), where), where, digest)


def _detail(detail: object, where: str) -> str:
    if detail is None:
        return "auto"
    if detail not in DETAILS:
        raise wrong(f"the detail of {where}", detail, ", ".join(DETAILS))
    return str(detail)


def _digest(value: object, where: str) -> str | None:
    if value is None:
        return None
    try:
        return check_digest(value)
    except ValueError as error:
        accepted = "'sha256:' and 64 lower-case hex digits"
        raise wrong(f"the content_hash of {where}", value, accepted) from error
