"""What this model writes beside plain text: thoughts and calls; how it is told to, and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from firstlight.core.output import Completion
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.structured_outputs import StructuredOutputs
from firstlight.engine.build import Parts
from firstlight.engine.tools.formats import ToolFormat, call_form, detect
from firstlight.engine.tools.pieces import Parser
from firstlight.engine.tools.reasoning import (
    BEGIN,
    END,
    PlainReader,
    ReasoningReader,
    reasoning_tokens,
)
from firstlight.errors import RequestError
from firstlight.server.failures import invalid
from firstlight.server.schemas.chat import ChatRequest
from firstlight.server.settings import ServerSettings
from firstlight.server.token_text import TokenText

_TAIL = 16  # tokens behind which no template opens thoughts


@dataclass(frozen=True, slots=True)
class AnswerForms:
    """How one model writes calls and thoughts.

    Attributes:
        tools: how it calls functions; None if that is not known.
        thinks: it may think before it answers.
        thinking: the prompt has begun the thoughts.
        special: ids of those borders of calls and thoughts that are special tokens.
    """

    tools: ToolFormat | None = None
    thinks: bool = False
    thinking: bool = False
    special: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, parts: Parts, settings: ServerSettings) -> AnswerForms:
        """Of a loaded model, by its chat template."""
        template = parts.model.chat_template or ""
        thinks = END in template and settings.reasoning_parser != "none"
        added = parts.model.tokenizer.added_tokens_decoder.items()
        return cls(
            tools=detect(template, settings.tool_call_parser),
            thinks=thinks,
            thinking=thinks and _ends_in_thoughts(parts),
            special={token.content: int(i) for i, token in added if token.special},
        )

    def check(self, body: ChatRequest) -> None:
        """Raise ApiError if the conversation needs tools and the model has no way to call them."""
        if self.tools is not None:
            return
        if body.may_call:
            raise invalid(
                "tools: this model's chat template shows no way to call them that is "
                "known here; the server's setting tool_call_parser names one",
                "tools",
            )
        for i, message in enumerate(body.messages):
            if getattr(message, "tool_calls", None):
                place = f"messages[{i}].tool_calls"
                raise invalid(f"{place}: this model's chat template has no place for them", place)

    def params(self, body: ChatRequest) -> SamplingParams:
        """The engine's parameters of a request, forms that are enforced included.

        Raises:
            RequestError: parameters contradict each other, or a tool's are no schema.
        """
        params = body.params()
        form = self._form(body, params)
        if form is not None and self.thinks:
            form = replace(form, thoughts=(BEGIN, END), thinking=self.thinking)
        return replace(
            params, structured_outputs=form, skip_special_tokens=not self._shows_special(body)
        )

    def told(self, body: ChatRequest) -> list[dict[str, Any]]:
        """The tools as chat templates take them."""
        return [
            _told(tool.model_dump(exclude_none=True)) for tool in body.tools or () if body.may_call
        ]

    def reader(self, body: ChatRequest) -> Parser:
        """A reader of one answer to a request."""
        rest: Parser = PlainReader()
        if body.may_call and self.tools is not None:
            rest = self.tools.reader(body.parallel_tool_calls is not False)
        return ReasoningReader(rest, thinking=self.thinking) if self.thinks else rest

    def thought(self, completion: Completion, tokens: TokenText) -> int:
        """Tokens of an answer that are thoughts."""
        if not self.thinks:
            return 0
        return reasoning_tokens(completion.token_ids, tokens.join, thinking=self.thinking)

    def _form(self, body: ChatRequest, params: SamplingParams) -> StructuredOutputs | None:
        """What is enforced: another form, calls that must be made, or those of strict tools."""
        chosen = body.callable_tools()
        strict = any(tool.function.strict for tool in chosen)
        form = params.structured_outputs
        if self.tools is None or form is not None or not (body.must_call or strict):
            return form
        tools = [
            (f"tools[{i}].function", tool.function.model_dump(exclude_none=True))
            for i, tool in enumerate(body.tools or ())
            if tool in chosen
        ]
        return call_form(
            self.tools,
            tools,
            several=body.parallel_tool_calls is not False,
            required=body.must_call,
            special=self.special,
        )

    def _shows_special(self, body: ChatRequest) -> bool:
        """Whether borders that have to be seen are special tokens, which texts leave out."""
        borders = self.tools.markers if self.tools is not None and body.may_call else ()
        thoughts = (BEGIN, END) if self.thinks else ()
        return any(text in self.special for text in (*borders, *thoughts))


def _told(tool: dict[str, Any]) -> dict[str, Any]:
    function = {name: value for name, value in tool["function"].items() if name != "strict"}
    function.setdefault("description", "")
    function.setdefault("parameters", {"type": "object", "properties": {}})
    return {"type": "function", "function": function}


def _ends_in_thoughts(parts: Parts) -> bool:
    """Whether the chat template itself begins the thoughts of every answer."""
    question = [{"role": "user", "content": "a"}]
    try:
        ids = parts.admission.chat(question, SamplingParams(temperature=0, max_tokens=1)).prompt.ids
    except RequestError:  # it wants more than a question
        return False
    text = str(parts.model.tokenizer.decode(ids[-_TAIL:]))
    return text.rstrip().endswith(BEGIN)
