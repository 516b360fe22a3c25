"""From messages, or a raw prompt, to token ids and the spans that pictures fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from firstlight.core.span import Span
from firstlight.core.text import check_text
from firstlight.engine.chat_template import ChatTemplate
from firstlight.engine.control import ControlTokens
from firstlight.engine.messages import ImageSource, Message, collect_images
from firstlight.errors import MediaError, RequestError
from firstlight.media.artifact import Artifact

__all__ = [
    "ImageSource",
    "MediaLayout",
    "Prompt",
    "PromptBuilder",
    "collect_images",
    "compose",
    "compose_text",
]


class MediaLayout(Protocol):
    """What a prompt must know of a model's pictures; an adapter has it."""

    @property
    def placeholder(self) -> str:
        """What the chat template writes for one picture; empty for a text-only model."""
        ...

    @property
    def placeholder_text(self) -> str:
        """What takes the placeholder's place before tokenising; holds the media token once."""
        ...

    @property
    def media_token_id(self) -> int | None:
        """The id whose positions media rows fill."""
        ...

    def expand(self, artifact: Artifact) -> list[int]:
        """The token ids that replace one media token of the tokenised prompt."""
        ...


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as the decoder sees it.

    Attributes:
        ids: token ids, placeholders expanded.
        spans: where media rows go, in order of position; ``item`` indexes ``artifacts``.
        artifacts: one per picture, in prompt order.
    """

    ids: list[int]
    spans: tuple[Span, ...] = ()
    artifacts: tuple[Artifact, ...] = ()


class PromptBuilder:
    """Builds the prompts of one model; holds nothing of any request.

    Args:
        tokenizer: a transformers tokenizer.
        chat_template: its source; None if the model has none.
        layout: the model's adapter.
    """

    def __init__(self, tokenizer: Any, chat_template: str | None, layout: MediaLayout) -> None:
        self._tokenizer = tokenizer
        self._layout = layout
        self._template = ChatTemplate(tokenizer, chat_template)
        written = (chat_template or "") + layout.placeholder_text
        self._control = ControlTokens(tokenizer, written, layout.placeholder)

    def chat(self, messages: Sequence[Message], artifacts: Sequence[Artifact] = ()) -> Prompt:
        """The prompt of a conversation.

        What users type is text: a control token or placeholder in it is encoded as its characters.
        For other texts without pictures the ids are exactly those of the tokenizer's own
        ``apply_chat_template``.

        Args:
            messages: from ``collect_images``.
            artifacts: one per picture of the messages, in order.

        Raises:
            RequestError: no template, a template that refuses the messages, or one that leaves out
                a picture or a message's text, with the place of it.
        """
        self._check_places(messages, artifacts)
        guarded, standins = self._control.guard(messages)
        rendered = self._template.render(guarded)
        left_out = self._template.unread(guarded, rendered)
        if left_out is not None:
            raise RequestError(
                f"messages[{left_out}].content would be lost: the model's chat template leaves out "
                f"the text of this message of role {messages[left_out]['role']!r}"
            )
        if artifacts:
            self._check_rendered(guarded, rendered, len(artifacts))
        ids = self._control.encode(self._framed(rendered), standins)
        return _expand(ids, self._layout, artifacts)

    def text(self, prompt: str, artifacts: Sequence[Artifact] = ()) -> Prompt:
        """A raw prompt: the caller writes control tokens and placeholders.

        Raises:
            RequestError: the text is not valid Unicode, or the number of placeholders is not that
                of the pictures; both are named.
        """
        if not isinstance(prompt, str):
            raise RequestError(f"a prompt must be a string, not a {type(prompt).__name__}")
        check_text(prompt, "the prompt")
        ids = self._tokenizer(self._framed(prompt), verbose=False)["input_ids"]
        return _expand([int(i) for i in ids], self._layout, artifacts)

    def _framed(self, text: str) -> str:
        """The text with what the model's processor writes around each picture."""
        placeholder, framed = self._layout.placeholder, self._layout.placeholder_text
        return text if framed == placeholder else text.replace(placeholder, framed)

    def _check_places(self, messages: Sequence[Message], artifacts: Sequence[Artifact]) -> None:
        places = _places(messages)
        for m, p in places:
            if not self._layout.placeholder:
                raise MediaError(f"{_at(m, p)} is a picture, but the model takes text only")
            if not self._template.reads_parts(messages[m]["role"]):
                raise _no_place(messages, m, p)
        if len(places) != len(artifacts):
            raise RequestError(
                f"the messages hold {len(places)} pictures, but {len(artifacts)} were prepared"
            )

    def _check_rendered(self, messages: Sequence[Message], rendered: str, n: int) -> None:
        """Raise if the template did not write one placeholder per picture."""
        placeholder = self._layout.placeholder
        written = rendered.count(placeholder)
        if written == n:
            return
        for m, p in _places(messages):
            if self._template.render(_without(messages, m, p)).count(placeholder) == written:
                raise _no_place(messages, m, p)
        raise MediaError(
            f"the messages hold {n} pictures, but the chat template writes {placeholder!r} "
            f"{written} times"
        )


def compose(
    messages: Sequence[Message],
    tokenizer: Any,
    chat_template: str | None,
    layout: MediaLayout,
    artifacts: Sequence[Artifact] = (),
) -> Prompt:
    """``PromptBuilder.chat`` for a single use; a builder that is kept saves its preparation."""
    return PromptBuilder(tokenizer, chat_template, layout).chat(messages, artifacts)


def compose_text(
    prompt: str, tokenizer: Any, layout: MediaLayout, artifacts: Sequence[Artifact] = ()
) -> Prompt:
    """``PromptBuilder.text`` for a single use."""
    return PromptBuilder(tokenizer, None, layout).text(prompt, artifacts)


def _places(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Message and part index of each picture."""
    return [
        (m, p)
        for m, message in enumerate(messages)
        for p, part in enumerate(message["content"])
        if part["type"] == "image"
    ]


def _at(m: int, p: int) -> str:
    return f"messages[{m}].content[{p}]"


def _no_place(messages: Sequence[Message], m: int, p: int) -> MediaError:
    return MediaError(
        f"{_at(m, p)} is a picture, but the model's chat template has no place for one in a "
        f"message of role {messages[m]['role']!r}"
    )


def _without(messages: Sequence[Message], m: int, p: int) -> list[Mapping[str, Any]]:
    parts = [part for i, part in enumerate(messages[m]["content"]) if i != p]
    changed = {**messages[m], "content": parts or [{"type": "text", "text": ""}]}
    return [*messages[:m], changed, *messages[m + 1 :]]


def _expand(ids: list[int], layout: MediaLayout, artifacts: Sequence[Artifact]) -> Prompt:
    """Put each picture's tokens in the place of one media token, and note where its rows go."""
    media_id = layout.media_token_id
    if media_id is None or not layout.placeholder:
        if artifacts:
            raise MediaError(f"{len(artifacts)} pictures, but the model takes text only")
        return Prompt(ids)
    found = ids.count(media_id)
    if found != len(artifacts):
        raise RequestError(
            f"the prompt holds {found} placeholders {layout.placeholder!r}, "
            f"but {len(artifacts)} pictures are given"
        )
    expanded: list[int] = []
    spans: list[Span] = []
    item = 0
    for token in ids:
        if token != media_id:
            expanded.append(token)
            continue
        inserted = layout.expand(artifacts[item])
        spans += _spans(inserted, media_id, item, len(expanded))
        expanded += inserted
        item += 1
    return Prompt(expanded, tuple(spans), tuple(artifacts))


def _spans(ids: Sequence[int], media_id: int, item: int, offset: int) -> list[Span]:
    """One span per run of the media token in a picture's tokens."""
    spans: list[Span] = []
    row = start = 0
    for end in range(1, len(ids) + 1):
        if end < len(ids) and (ids[end] == media_id) == (ids[start] == media_id):
            continue
        if ids[start] == media_id:
            spans.append(Span(item, offset + start, offset + end, row))
            row += end - start
        start = end
    if not row:
        raise MediaError("a picture was expanded to no media tokens")
    return spans
