"""The requests of ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from firstlight.server.schemas.fields import Count, Strict, only
from firstlight.server.schemas.messages import Messages

_MODEL = "One of the names in `/v1/models`; null for the model."


class TokenizeRequest(Strict):
    """A raw prompt or a conversation."""

    model: str | None = Field(None, max_length=1000, description=_MODEL)
    prompt: str | None = Field(None, description="A raw prompt; either this or `messages`.")
    messages: Messages | None = Field(
        None, description="A conversation, as the chat endpoint takes it; pictures are expanded."
    )
    add_generation_prompt: Annotated[bool | None, only(None, True)] = None
    add_special_tokens: Annotated[bool | None, only(None, True)] = None
    return_token_strs: bool | None = Field(
        None, description="Give the text of each token as well, as `token_strs`."
    )

    @model_validator(mode="after")
    def _check_one(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise PydanticCustomError("one_of", "give either prompt or messages")
        return self


class DetokenizeRequest(Strict):
    """Token ids."""

    model: str | None = Field(None, max_length=1000, description=_MODEL)
    tokens: Annotated[
        list[Count],
        Field(max_length=1_000_000, description="Token ids, each below the vocabulary's size."),
    ]
