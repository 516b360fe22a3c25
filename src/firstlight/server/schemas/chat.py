"""The request of ``/v1/chat/completions``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from firstlight.core.sampling_params import SamplingParams
from firstlight.engine.tools.rules import MAX_TOOLS, CallRules
from firstlight.server.schemas.fields import Positive, ignored, only
from firstlight.server.schemas.generation import Limited
from firstlight.server.schemas.messages import Messages
from firstlight.server.schemas.tools import NamedTool, Tool, check_choice


class ChatRequest(Limited):
    """A conversation to answer."""

    messages: Messages = Field(
        description="Turns of `system`, `developer`, `user`, `assistant` and `tool`."
    )
    max_completion_tokens: Positive | None = Field(
        None, description="The newer name of `max_tokens`; where both are given they must agree."
    )
    logprobs: bool | None = Field(None, description="The log probability of each token.")
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Of this many of its likeliest rivals too; with `logprobs` only."
    )

    metadata: dict[str, str] | None = ignored("nothing is stored")
    store: Annotated[bool | None, only(None, False, why="not served: nothing is stored")] = None
    safety_identifier: str | None = ignored("callers are not told apart")
    prompt_cache_key: str | None = ignored("equal beginnings of prompts are found by themselves")
    prompt_cache_options: Any = ignored("see prompt_cache_key")
    prompt_cache_retention: str | None = ignored("the prefix cache keeps what fits")
    prediction: Any = ignored("a prediction may speed up an answer and never changes it")
    service_tier: Annotated[str | None, only(None, "auto", "default")] = None
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = Field(
        None, description="Functions that the model may call; see [tools](tool-calls.md)."
    )
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = Field(
        None, description="`none`, `auto` (the default), `required`, or one of the tools by name."
    )
    parallel_tool_calls: bool | None = Field(
        None, description="Whether an answer may hold several calls. Default true."
    )
    reasoning_effort: Annotated[str, Field(max_length=64)] | None = Field(
        None,
        description="A variable of that name for the chat template; refused where it reads none.",
    )
    functions: Annotated[list[Any] | None, only(None, [])] = None
    function_call: Annotated[Any, only(None, "none", "auto")] = None
    modalities: Annotated[list[str] | None, only(None, ["text"])] = None
    audio: Annotated[Any, only(None)] = None
    verbosity: Annotated[str | None, only(None)] = None
    web_search_options: Annotated[Any, only(None)] = None
    moderation: Annotated[Any, only(None)] = None
    chat_template: Annotated[str | None, only(None)] = None
    chat_template_kwargs: dict[str, Any] | None = Field(
        None,
        description="Variables of the model's chat template, e.g. `enable_thinking`; one that the "
        "template does not read is refused.",
    )
    add_generation_prompt: bool | None = Field(
        None, description="Whether the prompt ends where a new answer begins. Default true."
    )
    continue_final_message: bool | None = Field(
        None,
        description="Go on with the last message, which is the assistant's; without "
        "`add_generation_prompt`.",
    )
    add_special_tokens: Annotated[bool | None, only(None, False)] = None
    documents: Annotated[Any, only(None)] = None
    mm_processor_kwargs: dict[str, Any] | None = Field(
        None, description="Options of the model's image processor, for all pictures."
    )

    @model_validator(mode="after")
    def _check_pairs(self) -> ChatRequest:
        a, b = self.max_tokens, self.max_completion_tokens
        if a is not None and b is not None and a != b:
            raise PydanticCustomError(
                "max_tokens",
                "max_completion_tokens = {b} contradicts it; accepted: both alike, or one",
                {"b": b},
            )
        if self.top_logprobs and not self.logprobs:
            raise PydanticCustomError("top_logprobs", "accepted only with logprobs = true")
        check_choice(self.tools or [], self.tool_choice)
        return self

    def call_rules(self) -> CallRules:
        """What is said of calls."""
        named = isinstance(self.tool_choice, NamedTool)
        return CallRules(
            tools=[tool.model_dump(exclude_none=True) for tool in self.tools or ()],
            choice="auto" if named else str(self.tool_choice or "auto"),
            name=self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else "",
            several=self.parallel_tool_calls is not False and not named,
        )

    def template_kwargs(self) -> dict[str, Any]:
        """Variables of the chat template."""
        given = dict(self.chat_template_kwargs or {})
        if self.reasoning_effort is not None:
            given.setdefault("reasoning_effort", self.reasoning_effort)
        return given

    def params(self) -> SamplingParams:
        """The engine's parameters; without a limit an answer may fill the context.

        Raises:
            RequestError: two of them contradict each other.
        """
        limit = self.max_tokens if self.max_tokens is not None else self.max_completion_tokens
        return self.sampling(limit, (self.top_logprobs or 0) if self.logprobs else None)
