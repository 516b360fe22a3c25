"""What a chat of the Python API may be told by keyword, beside messages and sampling parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from firstlight.engine.chat_options import ChatOptions
from firstlight.engine.refusal import wrong
from firstlight.engine.tools.forms import AnswerForms, ChatForm
from firstlight.engine.tools.rules import call_rules


class ChatKeywords(TypedDict, total=False):
    """The fields of :class:`ChatCall` as keywords."""

    mm_processor_kwargs: Mapping[str, object] | None
    tools: Sequence[Mapping[str, Any]] | None
    tool_choice: str | Mapping[str, Any] | None
    parallel_tool_calls: bool
    chat_template_kwargs: Mapping[str, Any] | None
    continue_final_message: bool


@dataclass(frozen=True, slots=True)
class ChatCall:
    """One call's options, for all its conversations.

    Attributes:
        mm_processor_kwargs: what the image processor is to do otherwise with the pictures, by the
            names that the model's family lets choose.
        tools: functions that the model may call, in OpenAI's form.
        tool_choice: ``none``, ``auto``, ``required``, or one tool by name, in OpenAI's form; None
            for ``auto``.
        parallel_tool_calls: an answer may hold several calls.
        chat_template_kwargs: variables of the model's chat template, e.g. ``enable_thinking``.
        continue_final_message: go on with the last message, which is the assistant's.
    """

    mm_processor_kwargs: Mapping[str, object] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool = True
    chat_template_kwargs: Mapping[str, Any] | None = None
    continue_final_message: bool = False

    def form(self, forms: AnswerForms, messages: Sequence[Mapping[str, Any]]) -> ChatForm:
        """How the answer to one conversation is told and read.

        Raises:
            RequestError: an option is malformed, or nothing that this model can be asked for.
        """
        continued = self.continue_final_message
        if not isinstance(continued, bool):
            raise wrong("continue_final_message", continued, "True or False")
        options = ChatOptions(
            template_kwargs={} if self.chat_template_kwargs is None else self.chat_template_kwargs,
            add_generation_prompt=not continued,
            continue_final_message=continued,
        )
        rules = call_rules(self.tools, self.tool_choice, self.parallel_tool_calls)
        return forms.chat(rules, options, messages)
