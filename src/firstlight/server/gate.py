"""The ASGI layers around the endpoints: names and logs, keys, and how large a body may be."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from firstlight.engine.aio import Intake
from firstlight.errors import DrainingError, OverloadedError
from firstlight.server.disconnect import ClientLeft
from firstlight.server.failures import ApiError, Failure, failure_of, is_foreseen
from firstlight.server.keys import KeyRing
from firstlight.server.logs import log_event, trace

OPEN_PATHS = frozenset({"/health"})
_PROBES = frozenset({"/health", "/metrics"})  # asked every few seconds, so that only faults matter
"""What may be read without a key, beside the playground's files."""
_LOG = logging.getLogger("firstlight.server")
_CLOSE = {"Connection": "close"}  # what else is sent of the body is not read
_SCHEMA = frozenset({"/openapi.json"})  # FastAPI does not say that this is the route
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)


class RequestLog:
    """The outermost layer: gives every request an id, logs one line, and answers what failed.

    ``scope["state"]`` gets ``request_id``, and ``facts``, to which endpoints add what is logged.

    Args:
        on_answer: told the declared route and the status of every request.
    """

    def __init__(self, app: ASGIApp, on_answer: Callable[[str, int], None]) -> None:
        self._app = app
        self._on_answer = on_answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; anything but HTTP is turned away."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        request_id = _request_id(scope)
        facts: dict[str, Any] = {}
        scope.setdefault("state", {}).update(request_id=request_id, facts=facts)
        began = time.perf_counter()
        status = 0

        async def named(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            await self._app(scope, receive, named)
        except ClientLeft:
            facts["left"] = True
        except (Exception, asyncio.CancelledError) as error:
            failure = _failure(error, request_id, facts)
            if not status:
                await failure.response()(scope, receive, named)
        finally:
            route = _route(scope)
            self._on_answer(route, status or 499)
            is_probe = route in _PROBES and status == 200
            log_event(
                _LOG,
                "request",
                logging.DEBUG if is_probe else logging.INFO,
                request=request_id,
                trace=scope["state"].get("trace_id"),
                method=scope["method"],
                route=route,
                status=status or 499,
                seconds=round(time.perf_counter() - began, 4),
                **facts,
            )


class KeyCheck:
    """Turns away whoever brings no key, on every path but the open ones.

    Args:
        open_paths: what may be read without a key: exactly these, in exactly this spelling.
    """

    def __init__(
        self, app: ASGIApp, keys: KeyRing, open_paths: Collection[str] = OPEN_PATHS
    ) -> None:
        self._app = app
        self._keys = keys
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request that brings a key, or needs none."""
        if scope["type"] == "http" and self._keys and not self._is_open(scope):
            given = _bearer(scope)
            if given is None or not self._keys.opens(given):
                missing = "an API key is needed: Authorization: Bearer KEY"
                failure = Failure(
                    401,
                    missing if given is None else "the API key is not one of this server's",
                    "authentication_error",
                    None,
                    "invalid_api_key",
                    {"WWW-Authenticate": "Bearer"},
                )
                await failure.response()(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return scope["path"] in self._open_paths and scope["method"] in ("GET", "HEAD")


class BodyLimit:
    """Bounds a request's body, the bodies of all requests together, and waits for the client.

    Args:
        intake: counts the bytes of all.
        most: bytes of one body.
        seconds: how long one wait may take, for more of a body or until an answer is taken.
        whole_s: how long a body may take in all.
    """

    def __init__(
        self, app: ASGIApp, intake: Intake, most: int, seconds: float, whole_s: float
    ) -> None:
        self._app = app
        self._intake = intake
        self._most = most
        self._seconds = seconds
        self._whole_s = whole_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body is within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = _Body(self, receive, time.monotonic() + self._whole_s)
        try:
            body.announce(scope)
            await self._app(scope, body.receive, self._impatient(send))
        except ApiError as error:  # of the header; FastAPI answers those of the body
            await error.failure.response()(scope, receive, send)
        finally:
            body.close()

    def _impatient(self, send: Send) -> Send:
        """As ``send``, but a client that takes nothing for too long counts as gone."""

        async def sending(message: Message) -> None:
            try:
                async with asyncio.timeout(self._seconds):
                    await send(message)
            except TimeoutError:
                raise ClientLeft from None

        return sending

    def hold(self, n_bytes: int) -> None:
        """Count bytes, of this body and of all."""
        self._intake.hold(n_bytes)

    def let_go(self, n_bytes: int) -> None:
        """Take back :meth:`hold`."""
        self._intake.let_go(n_bytes)

    def check(self, n_bytes: int) -> None:
        """Raise ApiError if a body of that size is too large."""
        if n_bytes > self._most:
            message = f"the body has more than the {self._most} bytes that are accepted"
            raise _refusal(413, message, "request_too_large")

    async def wait(self, receive: Receive, until: float) -> Message:
        """The next message of a body; ApiError if it does not come, or not in time."""
        left = until - time.monotonic()
        try:
            async with asyncio.timeout(min(self._seconds, left)):
                return await receive()
        except TimeoutError:
            message = f"nothing of the request's body came for {self._seconds:g} s"
            if left < self._seconds:  # drop by drop, it would hold its place without end
                message = f"the request's body took longer than the {self._whole_s:g} s it may"
            raise _refusal(408, message, "body_timeout") from None


class _Body:
    """One body on its way in."""

    def __init__(self, limit: BodyLimit, receive: Receive, until: float) -> None:
        self._limit = limit
        self._receive = receive
        self._until = until
        self._held = 0
        self._seen = 0
        self._whole = False

    def announce(self, scope: Scope) -> None:
        """Hold what the header says, before any of it is read."""
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit():
                self._hold(int(value[:20]))
            elif name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                message = "Content-Encoding: a body is taken as it is; accepted: none, or identity"
                raise _refusal(415, message, "unsupported_media_type")

    async def receive(self) -> Message:
        """The next message, counted."""
        if self._whole:
            return await self._receive()
        message = await self._limit.wait(self._receive, self._until)
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            if self._seen > self._held:
                self._hold(self._seen - self._held)
            self._whole = not message.get("more_body", False)
        return message

    def close(self) -> None:
        """Let go of the bytes."""
        self._limit.let_go(self._held)

    def _hold(self, n_bytes: int) -> None:
        self._limit.check(self._held + n_bytes)
        try:
            self._limit.hold(n_bytes)
        except OverloadedError as error:
            failure = failure_of(error, "")
            raise ApiError(replace(failure, headers={**failure.headers, **_CLOSE})) from error
        self._held += n_bytes


def _failure(error: BaseException, request_id: str, facts: dict[str, Any]) -> Failure:
    """What is told of what ended a request; what nobody foresaw is logged."""
    if isinstance(error, asyncio.CancelledError):  # uvicorn would say that the server is at fault
        failure = failure_of(DrainingError("the server ended before the answer"), request_id)
        facts["error"] = failure.code
        return failure
    if not is_foreseen(error):
        log_event(_LOG, "internal error", logging.ERROR, request=request_id, at=trace(error))
    return failure_of(error, request_id)


def _refusal(status: int, message: str, code: str) -> ApiError:
    return ApiError(Failure(status, message, code=code, headers=_CLOSE))


def _request_id(scope: Scope) -> str:
    """The client's own name for its request, if it is a harmless one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _NAME.fullmatch(text := value.decode("latin-1")):
            return str(text)
    return f"req-{uuid.uuid4().hex}"


def _route(scope: Scope) -> str:
    """The route as it is declared, ``none`` for a path that is none: what a client wrote is not
    repeated."""
    route = scope.get("route")
    if route is None and scope["path"] in _SCHEMA:
        return str(scope["path"])
    return getattr(route, "path", "none")


def _bearer(scope: Scope) -> str | None:
    """The key of the Authorization header; None if there is none, or more than one."""
    found = [value for name, value in scope["headers"] if name == b"authorization"]
    if len(found) != 1:
        return None
    scheme, _, key = found[0].decode("latin-1").partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None
