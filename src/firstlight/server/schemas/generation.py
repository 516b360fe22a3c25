"""The fields that chat and text completions share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from firstlight.core.sampling_params import SamplingParams
from firstlight.server.schemas.fields import (
    Count,
    LogitBias,
    Penalty,
    Positive,
    Seed,
    Stop,
    StopIds,
    Stops,
    Strict,
    Unit,
    ignored,
    only,
)
from firstlight.server.schemas.forms import FormFields, ResponseFormat, check_one_form, form_of


class StreamOptions(Strict):
    """What a stream says beside its text."""

    include_usage: bool | None = Field(None, description="A last chunk with the token counts.")
    continuous_usage_stats: bool | None = Field(
        None, description="The token counts so far in every chunk."
    )
    include_obfuscation: Annotated[bool | None, only(None, False)] = None


class Generation(Strict):
    """How to generate, for every endpoint that does."""

    model: str | None = Field(
        None, max_length=1000, description="One of the names in `/v1/models`; null for the model."
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
    min_p: Unit | None = Field(
        None, description="Keep tokens at least this fraction as likely as the likeliest."
    )
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] | None = Field(
        None, description="Divides the logits of tokens that are in prompt or answer. Default 1."
    )
    presence_penalty: Penalty | None = Field(
        None, description="Subtracted from the logits of tokens that are in the answer."
    )
    frequency_penalty: Penalty | None = Field(
        None, description="The same, once for each time that a token is there."
    )
    min_tokens: Count | None = Field(None, description="No end token before this many.")
    stop: Stop | Stops | None = Field(None, description="Text that ends the answer.")
    stop_token_ids: StopIds | None = Field(None, description="Tokens that end the answer.")
    logit_bias: LogitBias | None = Field(
        None, description="Added to the logits of tokens, by their ids; -100 forbids one."
    )
    skip_special_tokens: bool | None = Field(
        None, description="Leave special tokens out of the text. Default true."
    )
    ignore_eos: bool | None = Field(None, description="Go on after the model's end tokens.")
    seed: Seed | None = Field(None, description="With `n`, answer i gets seed + i.")
    n: Annotated[int, Field(ge=1, le=128)] | None = Field(None, description="Answers. Default 1.")
    stream: bool | None = Field(None, description="Send the answer in pieces.")
    stream_options: StreamOptions | None = Field(
        None, description="`include_usage`, `continuous_usage_stats`; with `stream` only."
    )
    timings: bool | None = Field(
        None, description="Put `timings` into the answer; see the header `X-Firstlight-Timings`."
    )

    user: str | None = ignored("callers are not told apart")
    include_stop_str_in_output: Annotated[bool | None, only(None, False)] = None
    spaces_between_special_tokens: Annotated[bool | None, only(None, True, False)] = None
    best_of: Annotated[int | None, only(None, 1)] = None
    use_beam_search: Annotated[bool | None, only(None, False)] = None
    length_penalty: Annotated[float | None, only(None, 1.0)] = None
    truncate_prompt_tokens: Annotated[int | None, only(None)] = None
    priority: Annotated[int | None, only(None, 0)] = None
    guided_json: Annotated[Any, only(None)] = None
    guided_regex: Annotated[Any, only(None)] = None
    guided_choice: Annotated[Any, only(None)] = None
    guided_grammar: Annotated[Any, only(None)] = None
    response_format: ResponseFormat | None = Field(
        None,
        description="The form of the answer: `text`, `json_object` or `json_schema`; see "
        "[structured output](structured-output.md).",
    )
    structured_outputs: FormFields | None = Field(
        None, description="The same with `json`, `json_object`, `regex`, `choice` or `grammar`."
    )

    @model_validator(mode="after")
    def _check_form(self) -> Generation:
        check_one_form(self.response_format, self.structured_outputs)
        return self

    @model_validator(mode="after")
    def _check_stream_options(self) -> Generation:
        if self.stream_options is not None and not self.stream:
            raise PydanticCustomError("stream_options", "accepted only with stream = true")
        return self

    @property
    def choices(self) -> int:
        """Answers that are asked for."""
        return self.n or 1

    def sampling(self, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """The engine's parameters.

        Raises:
            RequestError: two of them contradict each other.
        """
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": None if self.top_k is None else max(self.top_k, 0),
            "min_p": self.min_p,
            "repetition_penalty": self.repetition_penalty,
            "presence_penalty": self.presence_penalty,
            "frequency_penalty": self.frequency_penalty,
            "min_tokens": self.min_tokens,
            "logit_bias": self.logit_bias,
            "skip_special_tokens": self.skip_special_tokens,
            "stop": self.stop,
            "stop_token_ids": self.stop_token_ids,
            "ignore_eos": self.ignore_eos,
            "seed": self.seed,
            "structured_outputs": form_of(self.response_format, self.structured_outputs),
        }
        asked: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(max_tokens=max_tokens, logprobs=logprobs, **asked)


class Limited(Generation):
    """With ``max_tokens``."""

    max_tokens: Positive | None = Field(
        None, description="Tokens of the answer at most; where the context ends, it ends too."
    )
