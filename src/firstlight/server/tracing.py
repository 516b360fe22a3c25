"""Spans of requests, for whoever collects them. Nothing here imports a tracing library.

OpenTelemetry is an extra: :mod:`firstlight.server.otel` is imported when spans are asked for, and
costs nothing otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.types import ASGIApp

from firstlight.core.output import Completion
from firstlight.engine.aio import Waits
from firstlight.errors import ConfigError
from firstlight.server.settings import ServerSettings

EXTRA = "firstlight[otel]"
"""What installs OpenTelemetry."""


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """What the stages of one answered prompt are made of.

    Attributes:
        now: reading of the engine's clock, of which ``waits`` are readings as well.
        completions: all choices; none where the request broke off before its end.
    """

    model: str
    now: float
    waits: Waits
    prompt_tokens: int
    image_tokens: int
    completion_tokens: int
    completions: Sequence[Completion] = ()


class Tracing(Protocol):
    """Makes spans and sends them."""

    def around(self, app: ASGIApp) -> ASGIApp:
        """The application with a span around every request that asks for work."""
        ...

    def stages(self, facts: AnswerFacts) -> None:
        """Add the stages of a prompt to the request that runs."""
        ...

    def close(self) -> None:
        """Send what is left; may take seconds."""
        ...


def open_tracing(settings: ServerSettings) -> Tracing | None:
    """What makes spans, or None where none are wanted.

    Raises:
        ConfigError: they are wanted and OpenTelemetry is not installed; it names the extra.
    """
    endpoint = settings.otlp_traces_endpoint
    if not settings.otel and endpoint is None:
        return None
    asked = "otel = True" if endpoint is None else f"otlp_traces_endpoint = {endpoint!r}"
    try:
        from firstlight.server.otel import exporting
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(
            f"{asked} needs OpenTelemetry, and there is no module {error.name!r}: "
            f"pip install '{EXTRA}'"
        ) from error
    return exporting(endpoint)
