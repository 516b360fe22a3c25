"""Renders messages with a model's chat template."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from firstlight.engine.chat_options import PLAIN, ChatOptions
from firstlight.errors import RequestError

_PROBE: Final = "\U0010fffd"  # a character that no template writes
_TEXT_JOINT: Final = "\n"
_NO_PARAMETERS: Final = {"type": "object", "properties": {}}


class ChatTemplate:
    """One chat template with the tokenizer that renders it.

    Args:
        tokenizer: a transformers tokenizer.
        source: the template (Jinja), None if the model brings none.
    """

    def __init__(self, tokenizer: Any, source: str | None) -> None:
        self._tokenizer = tokenizer
        self._source = source or ""
        self._readable: dict[str, tuple[bool, bool]] = {}  # as a string, as a list
        self._tools_read: bool | None = None
        self._probed: set[str] = set()  # roles of which a bare message is read in some form

    def render(self, messages: Sequence[Mapping[str, Any]], options: ChatOptions = PLAIN) -> str:
        """The prompt as text, up to where the model's answer begins.

        Args:
            messages: as ``collect_media`` returns them. Content goes to the template as a string
                where it reads strings, as a list of parts where a message brings a picture or the
                template reads only lists.

        Raises:
            RequestError: there is no template, or it refuses the messages.
        """
        self._require()
        try:
            return self._apply([self._shape(message) for message in messages], options)
        except Exception as error:  # a template raises what it likes
            reason = " ".join(str(error).split()) or type(error).__name__
            raise RequestError(
                f"the chat template does not accept the messages: {reason}"
            ) from error

    def _require(self) -> None:
        if not self._source:
            raise RequestError(
                "messages: the model has no chat template; load it with one (the setting "
                "chat_template), or give a raw prompt"
            )

    def check_kwargs(self, names: Iterable[str]) -> None:
        """Raise RequestError for a variable that the template does not read: it would be lost."""
        for name in names:
            if not re.search(rf"\b{re.escape(name)}\b", self._source):
                raise RequestError(
                    f"chat_template_kwargs.{name}: the model's chat template reads no variable of "
                    "this name"
                )

    def _apply(self, messages: Sequence[Mapping[str, Any]], options: ChatOptions = PLAIN) -> str:
        rendered = self._tokenizer.apply_chat_template(
            list(messages),
            tools=list(options.tools) or None,
            chat_template=self._source,
            tokenize=False,
            add_generation_prompt=options.add_generation_prompt,
            continue_final_message=options.continue_final_message,
            **options.template_kwargs,
        )
        return str(rendered)

    def reads_parts(self, role: str) -> bool:
        """Whether messages of that role may be lists of parts; only then can they hold pictures.

        Raises:
            RequestError: there is no template.
        """
        self._require()
        return self._reads(self._role(role), as_list=True)

    def reads_tools(self) -> bool:
        """Whether tools arrive in the prompt; tried once.

        Raises:
            RequestError: there is no template.
        """
        self._require()
        if self._tools_read is None:
            text = [{"type": "text", "text": "a"}]
            function = {"name": _PROBE, "description": "a", "parameters": _NO_PARAMETERS}
            tool = {"type": "function", "function": function}
            try:
                rendered = self.render([{"role": "user", "content": text}], ChatOptions([tool]))
            except RequestError:
                rendered = ""
            self._tools_read = _PROBE in rendered
        return self._tools_read

    def unread(
        self,
        messages: Sequence[Mapping[str, Any]],
        rendered: str,
        options: ChatOptions = PLAIN,
    ) -> int | None:
        """The first message whose text the template left out of the prompt; None if there is none.

        What a template takes out of an assistant's message (old thoughts, the text beside a call)
        is its business, as long as it reads that role at all.

        Args:
            messages, options: as for :meth:`render`.
            rendered: what that made of them.
        """
        for m, message in enumerate(messages):
            texts = [part["text"].strip() for part in message["content"] if part["type"] == "text"]
            role = self._role(message["role"])
            if not any(texts) or (role == "assistant" and self._reads_any(role)):
                continue
            # That a text stands there says little of a short one: "a" may be the template's.
            written = all(text in rendered for text in texts) and self._reads_any(role)
            if not written and self._leaves_out(messages, m, rendered, options):
                return m
        return None

    def _leaves_out(
        self,
        messages: Sequence[Mapping[str, Any]],
        m: int,
        rendered: str,
        options: ChatOptions,
    ) -> bool:
        """Whether nothing of a mark in the texts of message ``m`` arrives in the prompt."""
        parts = [
            {**part, "text": f"{_PROBE}{part['text']}{_PROBE}"} if part["type"] == "text" else part
            for part in messages[m]["content"]
        ]
        marked = [*messages[:m], {**messages[m], "content": parts}, *messages[m + 1 :]]
        try:
            return self.render(marked, options).count(_PROBE) <= rendered.count(_PROBE)
        except RequestError:  # the template looks at the text itself, so it reads it
            return False

    def _reads_any(self, role: str) -> bool:
        """Whether a bare message of that role arrives in the prompt in any form."""
        self._reads(role, as_list=False)
        return role in self._probed

    def _role(self, role: str) -> str:
        # "developer" is OpenAI's newer name for "system"
        return "system" if role == "developer" and role not in self._source else role

    def _shape(self, message: Mapping[str, Any]) -> Mapping[str, Any]:
        role = self._role(message["role"])
        parts = message["content"]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        # A template that reads parts joins them in its own way; one that does not gets lines.
        as_list = len(texts) < len(parts) or (
            self._reads(role, as_list=True)
            and not (len(texts) == 1 and self._reads(role, as_list=False))
        )
        content = parts if as_list else _TEXT_JOINT.join(texts)
        return {**message, "role": role, "content": content}

    def _reads(self, role: str, *, as_list: bool) -> bool:
        """Whether a text of that role arrives in the prompt in this form; tried once."""
        if role not in self._readable:
            found = self._probe(role, as_list=False), self._probe(role, as_list=True)
            if any(found):
                self._probed.add(role)
            # Neither: the template wants more than a bare message of that role. Then the user's
            # messages say what it reads.
            if not any(found) and role != "user":
                found = self._reads("user", as_list=False), self._reads("user", as_list=True)
            self._readable[role] = found
        return self._readable[role][as_list]

    def _probe(self, role: str, *, as_list: bool) -> bool:
        parts = [{"type": "text", "text": _PROBE}]
        content: object = parts if as_list else _PROBE
        message = {"role": role, "content": content}
        # Some templates insist on a user's turn before others.
        for before in ([], [{"role": "user", "content": content}]):
            try:
                rendered = self._apply([*before, message])
            except Exception:
                continue
            # A template that takes everything for a string prints the list itself.
            printed = str(parts) in rendered or json.dumps(parts, ensure_ascii=False) in rendered
            if rendered.count(_PROBE) > len(before) and not printed:
                return True
        return False
