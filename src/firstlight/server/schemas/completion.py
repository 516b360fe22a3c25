"""The request of ``/v1/completions``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from firstlight.core.sampling_params import SamplingParams
from firstlight.server.schemas.fields import only
from firstlight.server.schemas.generation import Limited

DEFAULT_MAX_TOKENS = 16
"""OpenAI's own default of this endpoint."""


class CompletionRequest(Limited):
    """A text to go on with."""

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=128)] = Field(
        description="One prompt, or a list of them."
    )
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = Field(
        None, description="Log probabilities of each token and of this many rivals."
    )
    suffix: Annotated[str | None, only(None, "")] = None
    echo: Annotated[bool | None, only(None, False)] = None
    add_special_tokens: Annotated[bool | None, only(None, True)] = None

    @property
    def prompts(self) -> list[str]:
        """All prompts."""
        return [self.prompt] if isinstance(self.prompt, str) else self.prompt

    def params(self) -> SamplingParams:
        """The engine's parameters.

        Raises:
            RequestError: two of them contradict each other.
        """
        limit = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        if self.min_tokens is not None and self.max_tokens is None:
            limit = max(limit, self.min_tokens)
        return self.sampling(limit, self.logprobs)
