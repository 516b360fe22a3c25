"""Spans by OpenTelemetry. The only module that imports it, and itself imported only when asked.

The SDK reads the ``OTEL_*`` variables of the environment: exporter, headers, sampler, batches,
resource, propagators. No prompt, answer, key, address or query is in any span.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Span,
    SpanKind,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firstlight import __version__
from firstlight.server.otel_stages import SUMMED, Stage, answer_attributes, stages_of
from firstlight.server.tracing import AnswerFacts


def exporting(endpoint: str | None) -> OpenTelemetryTracing:
    """Spans that go to a collector by OTLP over HTTP.

    Args:
        endpoint: where to; None leaves it to the environment, and that to its own default.
    """
    provider = TracerProvider(resource=_resource())
    exporter = OTLPSpanExporter(endpoint=endpoint)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return OpenTelemetryTracing(provider)


class OpenTelemetryTracing:
    """A span for every request that asks for work, and below it one for each of its stages."""

    def __init__(self, provider: TracerProvider) -> None:
        self.provider = provider
        self._tracer = provider.get_tracer("firstlight", __version__)

    def around(self, app: ASGIApp) -> ASGIApp:
        """See :class:`~firstlight.server.tracing.Tracing`."""
        return _SpanLayer(app, self._tracer)

    def stages(self, facts: AnswerFacts) -> None:
        """See :class:`~firstlight.server.tracing.Tracing`."""
        span = get_current_span()
        if not span.is_recording():
            return
        told: dict[str, Any] = answer_attributes(facts)
        before: Mapping[str, Any] = getattr(span, "attributes", None) or {}
        for name in SUMMED:
            told[name] = told.get(name, 0) + before.get(name, 0)
        span.set_attributes(told)
        # The engine's clock counts from some moment of its own.
        zero_ns = time.time_ns() - _ns(facts.now)
        for stage in stages_of(facts):
            self._add(stage, span, zero_ns)

    def close(self) -> None:
        """See :class:`~firstlight.server.tracing.Tracing`."""
        self.provider.shutdown()

    def _add(self, stage: Stage, parent: Span, zero_ns: int) -> None:
        span = self._tracer.start_span(
            stage.name,
            set_span_in_context(parent),
            attributes=stage.attributes,
            start_time=zero_ns + _ns(stage.began),
        )
        for inner in stage.inner:
            self._add(inner, span, zero_ns)
        span.end(zero_ns + _ns(stage.ended))


class _SpanLayer:
    """Outermost: opens the span, in the trace that the caller names in its headers if it does."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        self._app = app
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; polls of health, metrics and pages are not traced."""
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        method = scope["method"]
        context = propagate.extract(_headers(scope))
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        # An exception's message may repeat a request, so none is recorded.
        with self._tracer.start_as_current_span(
            method,
            context,
            SpanKind.SERVER,
            {"http.request.method": method},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            state = scope.setdefault("state", {})
            if span.is_recording():
                state["trace_id"] = f"{span.get_span_context().trace_id:032x}"
            try:
                await self._app(scope, receive, watched)
            finally:
                _finish(span, scope, status)


def _finish(span: Span, scope: Scope, status: int) -> None:
    """What is known at the end: the route as it is declared, the status, the request's id."""
    state = scope["state"]
    facts: Mapping[str, object] = state.get("facts", {})
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
    if "request_id" in state:
        span.set_attribute("firstlight.request_id", state["request_id"])
    if facts.get("left"):
        span.set_attribute("firstlight.client_left", True)
    elif status:
        span.set_attribute("http.response.status_code", status)
    error = facts.get("error")
    if error is not None or status >= 500:
        span.set_attribute("error.type", str(error or status))
    # A stream's status was sent before it failed; what is the caller's fault is no error here.
    if status >= 500 or (error is not None and status < 400 and not facts.get("left")):
        span.set_status(StatusCode.ERROR)


def _resource() -> Resource:
    """The environment's, with a name where it gives none."""
    found = Resource.create()
    own = {SERVICE_VERSION: __version__}
    if str(found.attributes.get(SERVICE_NAME, "unknown")).startswith("unknown"):
        own[SERVICE_NAME] = "firstlight"
    return found.merge(Resource(own))


def _headers(scope: Scope) -> dict[str, str]:
    """For the propagators: names in lower case, the last of several values."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
