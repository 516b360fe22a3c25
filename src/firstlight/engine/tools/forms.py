"""What a model writes beside plain text, thoughts and calls: how it is told to, and read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from firstlight.core.output import Completion, ToolCall
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.structured_outputs import StructuredOutputs
from firstlight.engine.build import Parts
from firstlight.engine.chat_options import PLAIN, ChatOptions
from firstlight.engine.tools.formats import AUTO, ToolFormat, call_form, detect
from firstlight.engine.tools.pieces import Parser
from firstlight.engine.tools.reasoning import (
    Borders,
    PlainReader,
    ReasoningReader,
    borders_in,
    reasoning_tokens,
)
from firstlight.engine.tools.rules import CallRules
from firstlight.engine.tools.voice import Voice
from firstlight.errors import RequestError


@dataclass(frozen=True, slots=True)
class AnswerForms:
    """How one model writes calls and thoughts.

    Attributes:
        parts: of its engine.
        tools: how it calls functions; None if that is not known.
        thoughts: the texts around what it thinks before it answers; None if it does not.
        thinking: the prompt has begun the thoughts, unless a request's options say otherwise.
        special: ids of those borders of calls and thoughts that are special tokens.
    """

    parts: Parts
    tools: ToolFormat | None = None
    thoughts: Borders | None = None
    thinking: bool = False
    special: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Parts, tool_parser: str = AUTO, reasoning_parser: str = AUTO) -> AnswerForms:
        """Of a loaded model, by its chat template.

        Args:
            tool_parser: the name of a format, ``auto`` or ``none``.
            reasoning_parser: ``auto`` or ``none``.
        """
        template = parts.model.chat_template or ""
        thoughts = borders_in(template) if reasoning_parser == AUTO else None
        added = parts.model.tokenizer.added_tokens_decoder.items()
        special = {token.content: int(i) for i, token in added if token.special}
        tools = detect(template, tool_parser)
        forms = cls(parts, tools, thoughts, special=special)
        return replace(forms, thinking=forms._opens_thoughts(PLAIN))

    def chat(
        self,
        rules: CallRules,
        options: ChatOptions = PLAIN,
        messages: Sequence[Mapping[str, object]] = (),
    ) -> ChatForm:
        """How the answer to one conversation is told and read.

        Args:
            options: of the chat template; ``tools`` in it are not looked at.
            messages: the conversation.

        Raises:
            RequestError: calls are needed and the model has no way to write them, with the place.
        """
        if self.tools is None:
            if rules.may_call:
                raise RequestError(
                    "tools: this model's chat template shows no way to call them that is known "
                    "here; tool_call_parser names one"
                )
            for i, message in enumerate(messages):
                if isinstance(message, Mapping) and message.get("tool_calls"):
                    raise RequestError(
                        f"messages[{i}].tool_calls: this model's chat template has no place for "
                        "them"
                    )
        thinking = self.thinking
        if options.continue_final_message:
            thinking = self._left_open(messages)
        elif options.template_kwargs:
            thinking = self._opens_thoughts(options)
        return ChatForm(self, rules, replace(options, tools=rules.told()), thinking)

    def _opens_thoughts(self, options: ChatOptions) -> bool:
        """Whether the chat template itself begins the thoughts of an answer."""
        if self.thoughts is None:
            return False
        try:
            text = self.parts.admission.beginning(options)
        except RequestError:  # it wants more than a question
            return False
        return text.rstrip().endswith(self.thoughts.begin)

    def _left_open(self, messages: Sequence[Mapping[str, object]]) -> bool:
        """Whether the last message, which the answer goes on with, is in its thoughts."""
        last = messages[-1] if messages else None
        said = str(last.get("content")) if isinstance(last, Mapping) else ""
        thoughts = self.thoughts
        return thoughts is not None and thoughts.begin in said and thoughts.end not in said


@dataclass(frozen=True, slots=True)
class ChatForm:
    """How one answer is told and read.

    Attributes:
        options: for the chat template, tools included.
        thinking: the prompt has begun the thoughts.
    """

    model: AnswerForms
    rules: CallRules
    options: ChatOptions
    thinking: bool

    @property
    def tools(self) -> ToolFormat | None:
        """How the model calls functions."""
        return self.model.tools

    @property
    def thinks(self) -> bool:
        """Whether the model may think before it answers."""
        return self.model.thoughts is not None

    def params(self, params: SamplingParams) -> SamplingParams:
        """The engine's parameters, forms that are enforced included.

        Raises:
            RequestError: parameters contradict each other, or a tool's are no schema.
        """
        form, thoughts = self._form(params), self.model.thoughts
        if form is not None and thoughts is not None:
            borders = (thoughts.begin, thoughts.end)
            form = replace(form, thoughts=borders, thinking=self.thinking)
        shown = params.skip_special_tokens and not self._shows_special()
        return replace(params, structured_outputs=form, skip_special_tokens=shown)

    def reader(self) -> Parser:
        """A reader of one answer."""
        rest: Parser = PlainReader()
        if self.rules.may_call and self.tools is not None:
            rest = self.tools.reader(self.rules.several, self.rules.schemas())
        thoughts = self.model.thoughts
        return rest if thoughts is None else ReasoningReader(rest, thoughts, thinking=self.thinking)

    def read(self, completion: Completion) -> Completion:
        """The completion with its content, thoughts and calls."""
        voice = Voice(self.reader(), self.tools)
        voice.push(completion.text)
        voice.finish()
        said = voice.message()
        calls = tuple(
            ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"])
            for call in said.get("tool_calls", ())
        )
        return replace(
            completion,
            content=said["content"] or "",
            reasoning=said.get("reasoning_content"),
            tool_calls=calls,
        )

    def thought(self, completion: Completion, join: Callable[[Sequence[int]], str]) -> int:
        """Tokens of an answer that are thoughts.

        Args:
            join: the text of tokens, special ones included.
        """
        thoughts = self.model.thoughts
        if thoughts is None:
            return 0
        return reasoning_tokens(completion.token_ids, join, thoughts, thinking=self.thinking)

    def _form(self, params: SamplingParams) -> StructuredOutputs | None:
        """What is enforced: another form, calls that must be made, or those of strict tools."""
        form, tools, rules = params.structured_outputs, self.tools, self.rules
        chosen = rules.callable()
        strict = any(function.get("strict") for _, function in chosen)
        if form is not None and rules.must_call:
            raise RequestError("tool_choice: an answer that must call a tool has no other form")
        if tools is None or form is not None or not (rules.must_call or strict):
            return form
        return call_form(
            tools,
            chosen,
            several=rules.several,
            required=rules.must_call,
            special=self.model.special,
        )

    def _shows_special(self) -> bool:
        """Whether borders that have to be seen are special tokens, which texts leave out."""
        shown: list[str] = []
        if self.tools is not None and self.rules.may_call:
            shown += self.tools.markers
        if self.model.thoughts is not None:
            shown += (self.model.thoughts.begin, self.model.thoughts.end)
        return any(text in self.model.special for text in shown)
