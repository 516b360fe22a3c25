"""The application: endpoints, the layers around them, and the engine's start and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.telemetry import TelemetryConfig
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp

from firstlight import __version__
from firstlight.errors import FirstlightError
from firstlight.server.failures import ApiError, Failure, failure_of
from firstlight.server.gate import OPEN_PATHS, BodyLimit, KeyCheck, RequestLog
from firstlight.server.hosts import HostCheck, accepted_hosts
from firstlight.server.keys import KeyRing
from firstlight.server.openapi import document
from firstlight.server.parsing import failure_of_validation
from firstlight.server.routes.facts import facts_routes
from firstlight.server.routes.generate import generate_routes
from firstlight.server.routes.playground import playground_assets, playground_routes
from firstlight.server.routes.responses import responses_routes
from firstlight.server.service import Service
from firstlight.server.settings import ServerSettings

# FastAPI's own records what it refuses and what fails with its message, which may repeat a request.
_NO_TELEMETRY: Final[TelemetryConfig] = {
    "tracing": False,
    "metrics": False,
    "logs": False,
    "operation_spans": False,
    "auto_configure": False,
}


def build_app(service: Service, keys: KeyRing) -> ASGIApp:
    """The whole server as an ASGI application; its lifespan starts and ends the engine's thread."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.engine.start()
        try:
            yield
        finally:
            await service.engine.close()
            if service.tracing is not None:
                await asyncio.to_thread(service.tracing.close)

    # Its pages of documentation would load scripts from elsewhere.
    api = FastAPI(
        title="firstlight",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry=_NO_TELEMETRY,
    )
    api.include_router(generate_routes(service))
    api.include_router(responses_routes(service))
    api.include_router(facts_routes(service))
    page = playground_assets()
    api.include_router(playground_routes(page))
    document(api, keyed=bool(keys))
    _handle_errors(api)
    settings = service.settings
    app: ASGIApp = BodyLimit(
        api,
        service.engine.intake,
        settings.max_body_bytes,
        settings.body_seconds,
        settings.request_seconds,
    )
    app = KeyCheck(app, keys, OPEN_PATHS | page.keys())
    if settings.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "x-request-id", "x-firstlight-timings"],
            expose_headers=["x-request-id", "server-timing", "retry-after"],
        )
    app = RequestLog(_by_host(app, settings, bool(keys)), service.metrics.answered)
    return app if service.tracing is None else service.tracing.around(app)


def _by_host(app: ASGIApp, settings: ServerSettings, keyed: bool) -> ASGIApp:
    hosts = accepted_hosts(settings, keyed=keyed)
    return app if hosts is None else HostCheck(app, hosts)


def _handle_errors(api: FastAPI) -> None:
    @api.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return _answer(request, failure_of_validation(error, _model_of(request)))

    @api.exception_handler(Exception)  # Starlette's own answer would be a plain text
    async def unforeseen(request: Request, error: Exception) -> Response:
        return _answer(request, failure_of(error, request.state.request_id))

    @api.exception_handler(FirstlightError)
    async def refused(request: Request, error: FirstlightError) -> Response:
        return _answer(request, failure_of(error, request.state.request_id))

    @api.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        if isinstance(error, ApiError):
            return _answer(request, error.failure)
        message = f"{error.detail}: {request.method} on this path" + _instead(error)
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code)
        failure = Failure(error.status_code, message, code=code, headers=dict(error.headers or {}))
        return _answer(request, failure)


def _instead(error: HTTPException) -> str:
    """What to ask for where there is no such path, or no such method on it."""
    allowed = (error.headers or {}).get("Allow")
    if error.status_code == 405 and allowed:
        return f"; accepted: {', '.join(sorted(allowed.split(', ')))}"
    return "; /openapi.json lists all paths" if error.status_code == 404 else ""


def _answer(request: Request, failure: Failure) -> Response:
    request.state.facts.setdefault("error", failure.code or failure.type)
    return failure.response()


def _model_of(request: Request) -> type[BaseModel] | None:
    """What the body of this route must be."""
    field: Any = getattr(request.scope.get("route"), "body_field", None)
    model = getattr(getattr(field, "field_info", None), "annotation", None)
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None
