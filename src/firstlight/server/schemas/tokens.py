"""The requests of ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from firstlight.engine.chat_options import ChatOptions
from firstlight.engine.tools.rules import MAX_TOOLS, CallRules
from firstlight.server.schemas.fields import Count, Strict, only
from firstlight.server.schemas.messages import Messages
from firstlight.server.schemas.tools import Tool

_MODEL = "One of the names in `/v1/models`; null for the model."


class TokenizeRequest(Strict):
    """A raw prompt or a conversation."""

    model: str | None = Field(None, max_length=1000, description=_MODEL)
    prompt: str | None = Field(None, description="A raw prompt; either this or `messages`.")
    messages: Messages | None = Field(
        None, description="A conversation, as the chat endpoint takes it; pictures are expanded."
    )
    add_generation_prompt: bool | None = Field(
        None, description="Of messages: whether a new answer begins at the end. Default true."
    )
    continue_final_message: bool | None = Field(
        None, description="Of messages: leave the last one open."
    )
    chat_template_kwargs: dict[str, Any] | None = Field(
        None, description="Of messages: variables of the chat template."
    )
    tools: Annotated[list[Tool], Field(max_length=MAX_TOOLS)] | None = Field(
        None, description="Of messages: functions that the model is told of."
    )
    add_special_tokens: Annotated[bool | None, only(None, True)] = None
    return_token_strs: bool | None = Field(
        None, description="Give the text of each token as well, as `token_strs`."
    )

    @model_validator(mode="after")
    def _check_one(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise PydanticCustomError("one_of", "give either prompt or messages")
        return self

    def options(self) -> ChatOptions:
        """How the conversation becomes a prompt, as in a chat of the same fields.

        Raises:
            RequestError: they contradict each other.
        """
        tools = [tool.model_dump(exclude_none=True) for tool in self.tools or ()]
        begun, continued = self.add_generation_prompt, bool(self.continue_final_message)
        return ChatOptions(
            tools=CallRules(tools).told(),
            template_kwargs=self.chat_template_kwargs or {},
            add_generation_prompt=not continued if begun is None else begun,
            continue_final_message=continued,
        )


class DetokenizeRequest(Strict):
    """Token ids."""

    model: str | None = Field(None, max_length=1000, description=_MODEL)
    tokens: Annotated[
        list[Count],
        Field(max_length=1_000_000, description="Token ids, each below the vocabulary's size."),
    ]
