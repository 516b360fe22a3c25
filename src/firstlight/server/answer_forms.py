"""From a chat's request to how its answer is told and read: calls, thoughts, the template."""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.engine.build import Parts
from firstlight.engine.chat_options import ChatOptions
from firstlight.engine.tools.forms import AnswerForms as ModelForms
from firstlight.engine.tools.forms import ChatForm
from firstlight.server.schemas.chat import ChatRequest
from firstlight.server.schemas.messages import as_dicts
from firstlight.server.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class AnswerForms:
    """How the served model writes calls and thoughts.

    Attributes:
        model: the same for the engine.
    """

    model: ModelForms

    @classmethod
    def of(cls, parts: Parts, settings: ServerSettings) -> AnswerForms:
        """Of a loaded model, by its chat template and the settings."""
        return cls(ModelForms.of(parts, settings.tool_call_parser, settings.reasoning_parser))

    def chat(self, body: ChatRequest) -> ChatForm:
        """How the answer to one request is told and read.

        Raises:
            RequestError: it needs tools and the model has no way to call them, or the options of
                the template contradict each other.
        """
        continued = bool(body.continue_final_message)
        begun = body.add_generation_prompt
        options = ChatOptions(
            template_kwargs=body.template_kwargs(),
            add_generation_prompt=not continued if begun is None else begun,
            continue_final_message=continued,
        )
        return self.model.chat(body.call_rules(), options, as_dicts(body.messages))
