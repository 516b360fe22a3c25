"""Chat messages and their parts, in the form of OpenAI's chat completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from firstlight.server.schemas.fields import Strict, ignored, only
from firstlight.server.schemas.tools import ToolCall, with_values


class TextPart(Strict):
    """A piece of text."""

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: Any = ignored("every full page of a prompt is cached")
    cache_control: Any = ignored("every full page of a prompt is cached")


class ImageURL(Strict):
    """Where a picture is, and how finely to look at it."""

    url: str = Field(description="A data URL, or an address that the server may fetch.")
    detail: str | None = Field(None, description="`auto`, `low`, `high` or `original`.")


class ImagePart(Strict):
    """A picture."""

    type: Literal["image_url"]
    image_url: ImageURL | str
    content_hash: str | None = Field(
        None, description="`sha256:` and 64 hex digits: refused unless the content has this hash."
    )
    uuid: str | None = ignored("pictures are told apart by their content")
    prompt_cache_breakpoint: Any = ignored("every full page of a prompt is cached")
    cache_control: Any = ignored("every full page of a prompt is cached")


_FPS = "Of frames, how many there are a second; of a file, how many are taken."
_NUM_FRAMES = "So many frames are taken, evenly."


class VideoURL(Strict):
    """Where a video's file is."""

    url: str = Field(description="A data URL, or an address that the server may fetch.")


class VideoURLPart(Strict):
    """A video by its file."""

    type: Literal["video_url"]
    video_url: VideoURL | str
    fps: float | None = Field(None, gt=0, description=_FPS)
    num_frames: int | None = Field(None, ge=1, description=_NUM_FRAMES)
    uuid: str | None = ignored("videos are told apart by their content")
    cache_control: Any = ignored("every full page of a prompt is cached")


class VideoPart(Strict):
    """A video by its frames, each as a picture's ``url``, or by its file."""

    type: Literal["video"]
    video: Annotated[list[str], Field(min_length=1)] | str
    fps: float | None = Field(None, gt=0, description=_FPS)
    num_frames: int | None = Field(None, ge=1, description=_NUM_FRAMES)
    uuid: str | None = ignored("videos are told apart by their content")
    cache_control: Any = ignored("every full page of a prompt is cached")


Part = Annotated[TextPart | ImagePart | VideoURLPart | VideoPart, Discriminator("type")]
Parts = Annotated[list[Part], Field(min_length=1)]
TextParts = Annotated[list[TextPart], Field(min_length=1)]


class SystemMessage(Strict):
    """Instructions."""

    role: Literal["system", "developer"]
    content: str | TextParts
    name: str | None = None


class UserMessage(Strict):
    """What the user says and shows."""

    role: Literal["user"]
    content: str | Parts
    name: str | None = None


class AssistantMessage(Strict):
    """An answer of before."""

    role: Literal["assistant"]
    content: str | TextParts | None = None
    name: str | None = None
    refusal: Annotated[str | None, only(None)] = None
    audio: Annotated[Any, only(None)] = None
    tool_calls: Annotated[list[ToolCall], Field(max_length=1000)] | None = None
    function_call: Annotated[Any, only(None)] = None
    reasoning_content: str | None = None
    annotations: Any = ignored("answers carry none")

    @model_validator(mode="after")
    def _check_something(self) -> AssistantMessage:
        if self.content is None and not self.tool_calls:
            raise PydanticCustomError("content", "an answer has content or tool_calls")
        return self


class ToolMessage(Strict):
    """What a called function gave."""

    role: Literal["tool"]
    content: str | Parts
    tool_call_id: str | None = None
    name: str | None = None


Message = Annotated[
    Annotated[SystemMessage, Tag("system")]
    | Annotated[UserMessage, Tag("user")]
    | Annotated[AssistantMessage, Tag("assistant")]
    | Annotated[ToolMessage, Tag("tool")],
    Discriminator(
        lambda m: _ROLES.get(
            str(m.get("role") if isinstance(m, dict) else getattr(m, "role", None))
        ),
        custom_error_type="role",
        custom_error_message="a message is an object whose role is system, developer, user, "
        "assistant or tool",
    ),
]
_ROLES = {"developer": "system"} | {role: role for role in ("system", "user", "assistant", "tool")}
Messages = Annotated[list[Message], Field(min_length=1, max_length=10_000)]
_UNUSED = {"prompt_cache_breakpoint", "cache_control", "uuid", "annotations"}


def as_dicts(messages: Messages) -> list[dict[str, Any]]:
    """The messages as the engine takes them, without what is ignored."""
    return [_plain(message.model_dump(exclude_none=True)) for message in messages]


def _plain(message: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in message.items() if name not in _UNUSED}
    if isinstance(kept.get("content"), list):
        kept["content"] = [
            {name: value for name, value in part.items() if name not in _UNUSED}
            for part in kept["content"]
        ]
    if kept.get("tool_calls"):
        kept["tool_calls"] = [with_values(call) for call in kept["tool_calls"]]
    return kept
