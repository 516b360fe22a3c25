"""The request of ``/v1/chat/completions``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from firstlight.core.sampling_params import SamplingParams
from firstlight.server.schemas.fields import Positive, ignored, only
from firstlight.server.schemas.generation import Limited
from firstlight.server.schemas.messages import Messages


class ChatRequest(Limited):
    """A conversation to answer."""

    messages: Messages = Field(
        description="Turns of `system`, `developer`, `user` and `assistant`."
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
    parallel_tool_calls: bool | None = ignored("no tools are called")
    tools: Annotated[list[Any] | None, only(None, [])] = None
    tool_choice: Annotated[Any, only(None, "none", "auto")] = None
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
        return self

    def params(self) -> SamplingParams:
        """The engine's parameters; without a limit an answer may fill the context.

        Raises:
            RequestError: two of them contradict each other.
        """
        limit = self.max_tokens if self.max_tokens is not None else self.max_completion_tokens
        return self.sampling(limit, (self.top_logprobs or 0) if self.logprobs else None)
