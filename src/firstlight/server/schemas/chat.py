"""The request of ``/v1/chat/completions``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from firstlight.core.sampling_params import SamplingParams
from firstlight.server.schemas.fields import Positive, ignored, only
from firstlight.server.schemas.forms import form_of
from firstlight.server.schemas.generation import Limited
from firstlight.server.schemas.messages import Messages
from firstlight.server.schemas.tools import MAX_TOOLS, NamedTool, Tool, check_choice


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
    functions: Annotated[list[Any] | None, only(None, [])] = None
    function_call: Annotated[Any, only(None, "none", "auto")] = None
    modalities: Annotated[list[str] | None, only(None, ["text"])] = None
    audio: Annotated[Any, only(None)] = None
    reasoning_effort: Annotated[str | None, only(None)] = None
    verbosity: Annotated[str | None, only(None)] = None
    web_search_options: Annotated[Any, only(None)] = None
    moderation: Annotated[Any, only(None)] = None
    chat_template: Annotated[str | None, only(None)] = None
    chat_template_kwargs: Annotated[dict[str, Any] | None, only(None, {})] = None
    add_generation_prompt: Annotated[bool | None, only(None, True)] = None
    continue_final_message: Annotated[bool | None, only(None, False)] = None
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
                "max_tokens = {a} and max_completion_tokens = {b} contradict each other",
                {"a": a, "b": b},
            )
        if self.top_logprobs and not self.logprobs:
            raise PydanticCustomError(
                "top_logprobs", "top_logprobs is accepted only with logprobs = true"
            )
        check_choice(self.tools or [], self.tool_choice)
        if self.must_call and form_of(self.response_format, self.structured_outputs):
            raise PydanticCustomError(
                "tool_choice", "an answer that must call a tool cannot have another form"
            )
        return self

    @property
    def may_call(self) -> bool:
        """Whether the answer may hold calls."""
        return bool(self.tools) and self.tool_choice != "none"

    @property
    def must_call(self) -> bool:
        """Whether the answer must be a call."""
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedTool)

    def callable_tools(self) -> list[Tool]:
        """The tools that the answer may call."""
        if isinstance(self.tool_choice, NamedTool):
            name = self.tool_choice.function.name
            return [tool for tool in self.tools or [] if tool.function.name == name]
        return list(self.tools or []) if self.may_call else []

    def params(self) -> SamplingParams:
        """The engine's parameters; without a limit an answer may fill the context.

        Raises:
            RequestError: two of them contradict each other.
        """
        limit = self.max_tokens if self.max_tokens is not None else self.max_completion_tokens
        return self.sampling(limit, (self.top_logprobs or 0) if self.logprobs else None)
