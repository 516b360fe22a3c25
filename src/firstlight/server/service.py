"""What every endpoint needs: the engine, its facts, the metrics and the settings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firstlight.engine.aio import AsyncEngine
from firstlight.engine.build import Parts
from firstlight.server.answer_forms import AnswerForms
from firstlight.server.engine_metrics import EngineMetrics
from firstlight.server.failures import ApiError, Failure, invalid
from firstlight.server.metrics import Metrics
from firstlight.server.settings import ServerSettings
from firstlight.server.token_text import TokenText
from firstlight.server.tracing import Tracing


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What clients are told about the model.

    Attributes:
        names: by which it may be called; the first stands in answers.
        created: Unix time of the server's start.
    """

    names: tuple[str, ...]
    created: int
    max_context: int
    modalities: tuple[str, ...]
    embed_width: int

    @classmethod
    def of(cls, parts: Parts, names: tuple[str, ...]) -> ModelFacts:
        """Of an engine. ``names``: others than the model's own, if any are wanted."""
        taken = {"image": parts.model.image_processor, "video": parts.model.video_processor}
        return cls(
            names=names or (parts.model.name,),
            created=int(time.time()),
            max_context=parts.memory.max_context,
            modalities=("text", *(kind for kind in taken if taken[kind] is not None)),
            embed_width=parts.model.adapter.contract.input_embeds_hidden_size,
        )

    def as_dict(self, name: str) -> dict[str, Any]:
        """OpenAI's model object with what a client wants to know beside it."""
        return {
            "id": name,
            "object": "model",
            "created": self.created,
            "owned_by": "firstlight",
            "root": self.names[0],
            "parent": None,
            "max_model_len": self.max_context,
            "modalities": list(self.modalities),
            "embed_width": self.embed_width,
        }


@dataclass(frozen=True, slots=True)
class Service:
    """A running server's parts."""

    engine: AsyncEngine
    model: ModelFacts
    metrics: Metrics
    engine_metrics: EngineMetrics
    settings: ServerSettings
    tokens: TokenText
    forms: AnswerForms
    tracing: Tracing | None = None

    @property
    def parts(self) -> Parts:
        """Of the engine."""
        return self.engine.parts

    def check_token_ids(self, token_ids: Sequence[int] | None, param: str) -> None:
        """Raise ApiError for an id that the vocabulary does not have."""
        size = self.tokens.size
        for i, token in enumerate(token_ids or ()):
            if token >= size:
                place = f"{param}[{i}]"
                raise invalid(f"{place} = {token}; the vocabulary has {size} tokens", place)

    def name_for(self, asked: str | None) -> str:
        """The model's name as an answer says it.

        Raises:
            ApiError: 404, a name that is not served.
        """
        if asked is None:
            return self.model.names[0]
        if asked not in self.model.names:
            served = ", ".join(map(repr, self.model.names))
            message = f"there is no model {asked[:200]!r} here; served: {served}"
            raise ApiError(Failure(404, message, param="model", code="model_not_found"))
        return asked
