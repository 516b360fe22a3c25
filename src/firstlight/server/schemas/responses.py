"""The request of ``/v1/responses``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from firstlight.engine.tools.rules import MAX_TOOLS
from firstlight.server.schemas.fields import Positive, Seed, Strict, ignored, only
from firstlight.server.schemas.forms import JsonObjectFormat, TextFormat
from firstlight.server.schemas.tools import Arguments, Name, Parameters


class InputText(Strict):
    """A piece of text; ``output_text`` is one of an answer of before."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Any = ignored("answers carry none")
    logprobs: Any = ignored("they belong to the answer that had them")
    prompt_cache_breakpoint: Any = ignored("every full page of a prompt is cached")


class InputImage(Strict):
    """A picture."""

    type: Literal["input_image"]
    image_url: str = Field(description="A data URL, or an address that the server may fetch.")
    detail: str | None = None
    file_id: Annotated[str | None, only(None, why="not served: no files are stored")] = None
    content_hash: str | None = None
    prompt_cache_breakpoint: Any = ignored("every full page of a prompt is cached")


Part = Annotated[InputText | InputImage, Discriminator("type")]
Content = str | Annotated[list[Part], Field(min_length=1)]


class InputMessage(Strict):
    """A turn."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content
    id: str | None = ignored("nothing is stored")
    status: str | None = ignored("it belongs to the answer that had it")
    phase: str | None = ignored("it belongs to the answer that had it")

    @model_validator(mode="after")
    def _check_who_shows(self) -> InputMessage:
        if self.role != "user" and any(isinstance(part, InputImage) for part in self.content):
            raise PydanticCustomError(
                "content",
                "pictures are the user's to show; accepted of {role}: text",
                {"role": self.role},
            )
        return self


class FunctionCall(Strict):
    """A call in an answer of before."""

    type: Literal["function_call"]
    call_id: Annotated[str, Field(max_length=1000)]
    name: Name
    arguments: Arguments
    id: str | None = ignored("nothing is stored")
    status: str | None = ignored("it belongs to the answer that had it")


class FunctionCallOutput(Strict):
    """What a called function gave."""

    type: Literal["function_call_output"]
    call_id: Annotated[str, Field(max_length=1000)]
    output: Content
    id: str | None = ignored("nothing is stored")
    status: str | None = ignored("it belongs to the answer that had it")


class ReasoningItem(Strict):
    """Thoughts of an answer of before, which go into no prompt."""

    type: Literal["reasoning"]
    id: str | None = None
    summary: list[Any] | None = None
    content: list[Any] | None = None
    encrypted_content: str | None = None
    status: str | None = None


def _kind(item: Any) -> str | None:
    kind = item.get("type", "message") if isinstance(item, dict) else getattr(item, "type", None)
    return kind if isinstance(kind, str) else None


Item = Annotated[
    Annotated[InputMessage, Tag("message")]
    | Annotated[FunctionCall, Tag("function_call")]
    | Annotated[FunctionCallOutput, Tag("function_call_output")]
    | Annotated[ReasoningItem, Tag("reasoning")],
    Discriminator(
        _kind,
        custom_error_type="type",
        custom_error_message="an item is a message, function_call, function_call_output or "
        "reasoning",
    ),
]


class SchemaFormat(Strict):
    """JSON that is valid under a schema."""

    type: Literal["json_schema"]
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    description: Annotated[str, Field(max_length=10_000)] | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


Format = Annotated[TextFormat | JsonObjectFormat | SchemaFormat, Discriminator("type")]


class TextOptions(Strict):
    """How the answer's text is to be."""

    format: Format | None = None
    verbosity: Annotated[str | None, only(None)] = None


class FunctionTool(Strict):
    """A function that the model may call."""

    type: Literal["function"]
    name: Name
    description: Annotated[str, Field(max_length=100_000)] | None = None
    parameters: Parameters | None = None
    strict: bool | None = None


class FunctionChoice(Strict):
    """The function that is to be called."""

    type: Literal["function"]
    name: Name


class ResponsesRequest(Strict):
    """What to answer, in the form of OpenAI's responses; nothing is stored."""

    input: str | Annotated[list[Item], Field(min_length=1, max_length=10_000)] = Field(
        description="A question, or items: messages, calls and what they gave."
    )
    model: str | None = Field(
        None, max_length=1000, description="One of the names in `/v1/models`; null for the model."
    )
    instructions: str | None = Field(None, description="A system message before the input.")
    max_output_tokens: Positive | None = Field(
        None, description="Tokens of the answer at most; where the context ends, it ends too."
    )
    temperature: Annotated[float, Field(ge=0, le=100)] | None = Field(
        None, description="0 is greedy. Default 1."
    )
    top_p: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="Keep the smallest set of tokens of this probability. Default 1."
    )
    top_k: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = Field(
        None, description="Keep the k most likely tokens; 0 and -1 keep all."
    )
    seed: Seed | None = Field(None, description="Makes the answer repeatable.")
    ignore_eos: bool | None = Field(None, description="Go on after the model's end tokens.")
    text: TextOptions | None = Field(
        None, description="`format`: `text`, `json_object` or `json_schema`."
    )
    tools: Annotated[list[FunctionTool], Field(max_length=MAX_TOOLS)] | None = Field(
        None, description="Functions that the model may call; see [tools](tool-calls.md)."
    )
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | None = Field(
        None, description="`none`, `auto` (the default), `required`, or one of the tools by name."
    )
    parallel_tool_calls: bool | None = Field(
        None, description="Whether an answer may hold several calls. Default true."
    )
    stream: bool | None = Field(None, description="Send the answer as events.")
    timings: bool | None = Field(
        None, description="Put `timings` into the answer; see the header `X-Firstlight-Timings`."
    )

    metadata: dict[str, str] | None = Field(None, description="Comes back in the answer.")
    user: str | None = ignored("callers are not told apart")
    safety_identifier: str | None = ignored("callers are not told apart")
    prompt_cache_key: str | None = ignored("equal beginnings of prompts are found by themselves")
    prompt_cache_options: Any = ignored("see prompt_cache_key")
    prompt_cache_retention: str | None = ignored("the prefix cache keeps what fits")
    store: Annotated[bool | None, only(None, False, why="not served: nothing is stored")] = None
    previous_response_id: Annotated[str | None, only(None, why="not served: nothing is stored")] = (
        None
    )
    conversation: Annotated[Any, only(None, why="not served: nothing is stored")] = None
    background: Annotated[bool | None, only(None, False)] = None
    background_options: Annotated[Any, only(None)] = None
    context_management: Annotated[Any, only(None)] = None
    image: Annotated[Any, only(None)] = None
    include: Annotated[list[str] | None, only(None, [])] = None
    max_tool_calls: Annotated[int | None, only(None)] = None
    moderation: Annotated[Any, only(None)] = None
    access_programs: Annotated[Any, only(None)] = None
    prompt: Annotated[Any, only(None)] = None
    reasoning: Annotated[Any, only(None, {})] = None
    service_tier: Annotated[str | None, only(None, "auto", "default")] = None
    stream_options: Annotated[Any, only(None, {"include_obfuscation": False})] = None
    top_logprobs: Annotated[int | None, only(None, 0)] = None
    truncation: Annotated[str | None, only(None, "disabled")] = None
