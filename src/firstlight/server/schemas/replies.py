"""The forms of answers, for the schema at ``/openapi.json``. Answers are built as plain values and
not checked against these while they are served; the tests of the schema do."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Reply(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="forbid")


class ErrorFacts(Reply):
    """What is wrong."""

    message: str
    type: str
    param: str | None = Field(description="The field at fault.")
    code: str | None


class ErrorReply(Reply):
    """Why a request was not answered."""

    error: ErrorFacts


class ModelReply(Reply):
    """A model that is served."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    root: str
    parent: str | None
    max_model_len: int = Field(description="Tokens of the context.")
    modalities: list[str]
    embed_width: int = Field(description="Columns that a token brings into the decoder.")


class ModelsReply(Reply):
    """The model by each of its names."""

    object: Literal["list"]
    data: list[ModelReply]


class VersionReply(Reply):
    """The version of firstlight."""

    version: str


class HealthReply(Reply):
    """How the server is."""

    status: str
    steps: int
    faults: int
    late_graphs: int


class TokenizeReply(Reply):
    """Tokens of a prompt."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = Field(None, description="With `return_token_strs`.")


class DetokenizeReply(Reply):
    """The text of tokens."""

    prompt: str


class GraphsReply(BaseModel):
    """Captured graphs, what ran from them, and what did not; by phase."""

    model_config = ConfigDict(extra="allow")

    coverage: dict[str, Any]
    buckets: Any


class PromptDetails(Reply):
    """What a prompt consisted of."""

    cached_tokens: int
    image_tokens: int
    text_tokens: int


class Usage(Reply):
    """Token counts."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: dict[str, int] | None = None


class CalledFunction(Reply):
    """A function and what it is called with, as JSON text."""

    name: str
    arguments: str


class CallReply(Reply):
    """A call that the model asks for."""

    id: str
    type: Literal["function"]
    function: CalledFunction


class MessageReply(Reply):
    """The model's message."""

    role: Literal["assistant"]
    content: str | None
    refusal: None = None
    reasoning_content: str | None = None
    tool_calls: list[CallReply] | None = None


class ChatChoice(Reply):
    """One of the answers."""

    index: int
    message: MessageReply
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "tool_calls"]


class ChatReply(Reply):
    """An answer to a chat."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[ChatChoice]
    usage: Usage
    timings: dict[str, Any] | None = None


class CompletionChoice(Reply):
    """One of the answers."""

    index: int
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length"]


class CompletionReply(Reply):
    """What follows the prompts."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice]
    usage: Usage
    timings: dict[str, Any] | None = None


class ResponseReply(BaseModel):
    """An answer in the form of responses, which repeats what was asked for."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["completed", "incomplete"]
    model: str
    output: list[dict[str, Any]]
    usage: dict[str, Any]
