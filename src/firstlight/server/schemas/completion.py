"""The request of ``/v1/completions``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from firstlight.core.sampling_params import SamplingParams
from firstlight.server.schemas.fields import Count, only
from firstlight.server.schemas.generation import Limited

MAX_PROMPTS = 128
Ids = Annotated[list[Count], Field(min_length=1, max_length=1_000_000)]
DEFAULT_MAX_TOKENS = 16
"""OpenAI's own default of this endpoint."""


class CompletionRequest(Limited):
    """A text to go on with."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, max_length=MAX_PROMPTS)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, max_length=MAX_PROMPTS)]
    ) = Field(description="One prompt, as text or as token ids, or a list of such.")
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Log probabilities of each token and of this many rivals."
    )
    echo: bool | None = Field(
        None, description="Let the answer begin with the prompt; not together with `logprobs`."
    )
    suffix: Annotated[str | None, only(None, "")] = None
    add_special_tokens: Annotated[bool | None, only(None, True)] = None

    @model_validator(mode="after")
    def _check_echo(self) -> CompletionRequest:
        if self.echo and self.logprobs is not None:
            raise PydanticCustomError(
                "not_supported",
                "together with logprobs this is not implemented; accepted: one of the two",
                {"field": "echo"},
            )
        return self

    @property
    def prompts(self) -> list[str | list[int]]:
        """All prompts."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [token for token in self.prompt if isinstance(token, int)]
        return [ids] if ids else [prompt for prompt in self.prompt if not isinstance(prompt, int)]

    def params(self) -> SamplingParams:
        """The engine's parameters.

        Raises:
            RequestError: two of them contradict each other.
        """
        limit = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        if self.min_tokens is not None and self.max_tokens is None:
            limit = max(limit, self.min_tokens)
        return self.sampling(limit, self.logprobs)
