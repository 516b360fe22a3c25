"""From messages, or a raw prompt, to token ids and the spans that pictures and videos fill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from firstlight.core.text import check_text
from firstlight.engine.chat_options import PLAIN, ChatOptions
from firstlight.engine.chat_template import ChatTemplate
from firstlight.engine.control import ControlTokens
from firstlight.engine.expansion import NAMES, MediaLayout, Prompt, expand, placeholders
from firstlight.engine.messages import ImageSource, Message, collect_media
from firstlight.engine.tool_calls import check_calls
from firstlight.errors import MediaError, RequestError
from firstlight.media.artifact import VIDEO, Artifact

__all__ = [
    "ImageSource",
    "MediaLayout",
    "Prompt",
    "PromptBuilder",
    "collect_media",
    "compose",
    "compose_text",
]


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
        self._placeholders = placeholders(layout)
        self._control = ControlTokens(tokenizer, written, *self._placeholders.values())

    def chat(
        self,
        messages: Sequence[Message],
        artifacts: Sequence[Artifact] = (),
        options: ChatOptions = PLAIN,
    ) -> Prompt:
        """The prompt of a conversation.

        What users type is text: a control token or placeholder in it is encoded as its characters.
        For other texts without pictures the ids are exactly those of the tokenizer's own
        ``apply_chat_template``.

        Args:
            messages: from ``collect_media``.
            artifacts: one per picture or video of the messages, in order.
            options: tools, variables of the template; their texts are text, too.

        Raises:
            RequestError: no template, a template that refuses the messages, or one that leaves out
                a picture, a video, tools, a variable, a call or a message's text, with its place.
        """
        self._check_places(messages, artifacts)
        self._template.check_kwargs(options.template_kwargs)
        if options.tools and not self._template.reads_tools():
            raise RequestError(
                "tools are given, but the model's chat template has no place for any"
            )
        # Their control tokens are found as if a message had brought them.
        beside = {"tools": list(options.tools), "kwargs": dict(options.template_kwargs)}
        guarded, standins = self._control.guard([*messages, {"role": "system", **beside}])
        known = guarded.pop()
        told = replace(options, tools=known["tools"], template_kwargs=known["kwargs"])
        rendered = self._template.render(guarded, told)
        if any(message.get("tool_calls") for message in messages) and self._template.reads_tools():
            check_calls(guarded, rendered)
        left_out = self._template.unread(guarded, rendered, told)
        if left_out is not None:
            raise RequestError(
                f"messages[{left_out}].content would be lost: the model's chat template leaves out "
                f"the text of this message of role {messages[left_out]['role']!r}"
            )
        if artifacts:
            self._check_rendered(guarded, rendered, told)
        ids = self._control.encode(self._framed(rendered, artifacts), standins)
        return expand(ids, self._layout, artifacts)

    def text(self, prompt: str, artifacts: Sequence[Artifact] = ()) -> Prompt:
        """A raw prompt: the caller writes control tokens and placeholders.

        Raises:
            RequestError: the text is not valid Unicode, or the number of placeholders is not that
                of the pictures; both are named.
        """
        if not isinstance(prompt, str):
            raise RequestError(f"a prompt must be a string, not a {type(prompt).__name__}")
        check_text(prompt, "the prompt")
        ids = self._tokenizer(self._framed(prompt, artifacts), verbose=False)["input_ids"]
        return expand([int(i) for i in ids], self._layout, artifacts)

    def ids(self, prompt: Sequence[int], artifacts: Sequence[Artifact] = ()) -> Prompt:
        """A prompt as token ids, which stand as they are.

        Raises:
            RequestError: one is a placeholder, for which no picture is there.
        """
        return expand(list(prompt), self._layout, artifacts)

    def beginning(self, options: ChatOptions) -> str:
        """The text behind a bare question: how the template begins an answer with these options.

        Raises:
            RequestError: the template wants more than a question, or does not read a variable.
        """
        self._template.check_kwargs(options.template_kwargs)
        bare = replace(options, tools=(), add_generation_prompt=True, continue_final_message=False)
        question = [{"role": "user", "content": [{"type": "text", "text": "a"}]}]
        return self._template.render(question, bare)

    def _framed(self, text: str, artifacts: Sequence[Artifact]) -> str:
        """The text with what the model's processor writes around each picture and video."""
        layout = self._layout
        if layout.placeholder_text != layout.placeholder:
            text = text.replace(layout.placeholder, layout.placeholder_text)
        videos = [layout.video_text(a) for a in artifacts if a.modality == VIDEO]
        if videos and len(pieces := text.split(layout.video_placeholder)) == len(videos) + 1:
            text = pieces[0] + "".join(v + p for v, p in zip(videos, pieces[1:], strict=True))
        return text

    def _check_places(self, messages: Sequence[Message], artifacts: Sequence[Artifact]) -> None:
        for m, p in _places(messages):
            kind = messages[m]["content"][p]["type"]
            if kind not in self._placeholders:
                takes = f"no {NAMES[kind]}s" if self._placeholders else "text only"
                raise MediaError(f"{_at(m, p)} is a {NAMES[kind]}, but the model takes {takes}")
            if not self._template.reads_parts(messages[m]["role"]):
                raise _no_place(messages, m, p)
        for kind, name in NAMES.items():
            held = len(_places(messages, (kind,)))
            prepared = sum(artifact.modality == kind for artifact in artifacts)
            if held != prepared:
                raise RequestError(
                    f"the messages hold {held} {name}s, but {prepared} were prepared"
                )

    def _check_rendered(
        self, messages: Sequence[Message], rendered: str, options: ChatOptions
    ) -> None:
        """Raise if the template did not write one placeholder per picture and video."""
        for kind, placeholder in self._placeholders.items():
            places = _places(messages, (kind,))
            written = rendered.count(placeholder)
            if written == len(places):
                continue
            for m, p in places:
                rest = self._template.render(_without(messages, m, p), options)
                if rest.count(placeholder) == written:
                    raise _no_place(messages, m, p)
            raise MediaError(
                f"the messages hold {len(places)} {NAMES[kind]}s, but the chat template writes "
                f"{placeholder!r} {written} times"
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


def _places(
    messages: Sequence[Message], kinds: Sequence[str] = tuple(NAMES)
) -> list[tuple[int, int]]:
    """Message and part index of each picture and video."""
    return [
        (m, p)
        for m, message in enumerate(messages)
        for p, part in enumerate(message["content"])
        if part["type"] in kinds
    ]


def _at(m: int, p: int) -> str:
    return f"messages[{m}].content[{p}]"


def _no_place(messages: Sequence[Message], m: int, p: int) -> MediaError:
    name = NAMES[messages[m]["content"][p]["type"]]
    return MediaError(
        f"{_at(m, p)} is a {name}, but the model's chat template has no place for one in a "
        f"message of role {messages[m]['role']!r}"
    )


def _without(messages: Sequence[Message], m: int, p: int) -> list[Mapping[str, Any]]:
    parts = [part for i, part in enumerate(messages[m]["content"]) if i != p]
    changed = {**messages[m], "content": parts or [{"type": "text", "text": ""}]}
    return [*messages[:m], changed, *messages[m + 1 :]]
