"""Errors as OpenAI's clients read them, and the status of each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastapi import HTTPException
from starlette.responses import JSONResponse

from firstlight.errors import (
    DeadlineError,
    DrainingError,
    EngineFaultError,
    OverloadedError,
    PromptTooLongError,
    RequestError,
    RequestFailedError,
    ServingError,
)

_INVALID = "invalid_request_error"
# The place that the engine's messages about a request begin with.
_PLACE = re.compile(
    r"(?:the (?:detail|content_hash) of |a (?:key|name) of )?((?:messages|prompt|images|tools|"
    r"response_format|structured_outputs|logit_bias|stop_token_ids|tool_choice|"
    r"mm_processor_kwargs|chat_template_kwargs|continue_final_message|"
    r"(?:input|text)(?=[\[.]))"
    r"(?:\[\d+\]|\.[\w$-]+)*|\w+(?= = ))"
)
_KINDS: Mapping[type[ServingError], tuple[int, str, str]] = {
    OverloadedError: (429, "rate_limit_error", "queue_full"),
    DeadlineError: (504, "timeout_error", "deadline_exceeded"),
    DrainingError: (503, "service_unavailable_error", "shutting_down"),
    EngineFaultError: (503, "server_error", "engine_fault"),
    RequestFailedError: (500, "server_error", "request_failed"),
}
SERVING_CODES = tuple(code for _, _, code in _KINDS.values())
"""Codes of requests that were right and got no answer all the same."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request was not answered.

    Attributes:
        param: the field at fault, if it is one.
        code: OpenAI's short name of the reason.
    """

    status: int
    message: str
    type: str = _INVALID
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, object]:
        """OpenAI's error object."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}

    def response(self) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.as_dict(), self.status, dict(self.headers))


class ApiError(HTTPException):
    """A failure that is found in the server itself. FastAPI lets this kind of exception pass."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.status, failure.message, dict(failure.headers))
        self.failure = failure


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that is refused with 400."""
    return ApiError(Failure(400, message, _INVALID, param, code))


def failure_of(error: BaseException, request_id: str) -> Failure:
    """What a client is told of an exception. What nobody foresaw tells only its id."""
    if isinstance(error, ApiError):
        return error.failure
    if isinstance(error, RequestError):
        message = str(error)
        found = _PLACE.match(message)
        param = error.where or (found[1] if found else None)
        code = "context_length_exceeded" if isinstance(error, PromptTooLongError) else None
        return Failure(400, message, _INVALID, param, code)
    for kind, (status, name, code) in _KINDS.items():
        if isinstance(error, kind):
            message = f"{error}; request {request_id}" if status == 500 else str(error)
            headers = {}
            if error.retry_after is not None:
                headers["Retry-After"] = str(math.ceil(error.retry_after))
            if isinstance(error, DrainingError):
                headers["Connection"] = "close"  # the next one is to reach another server
            return Failure(status, message, name, None, code, headers)
    return Failure(
        500, f"the server failed; request {request_id}", "server_error", None, "internal_error"
    )


def is_foreseen(error: BaseException) -> bool:
    """Whether an exception says itself what is wrong, so that no traceback is needed."""
    return isinstance(error, ApiError | RequestError | ServingError)
