"""The schema at ``/openapi.json``: FastAPI's, with the answers and the refusals as they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from firstlight.server.schemas import replies
from firstlight.server.schemas.fields import Strict, refusal_of

_REF: Final = "#/components/schemas/{model}"
_JSON: Final = "application/json"
_KEY: Final = "key"
_MODELS_OF_FASTAPI: Final = ("HTTPValidationError", "ValidationError")


@dataclass(frozen=True, slots=True)
class _Answers:
    """What an operation answers with.

    Attributes:
        model: the form of its JSON; None for plain text.
        streams: whether it may be a stream of events instead.
        other: statuses that have the same form as 200.
    """

    model: type[BaseModel] | None
    streams: bool = False
    other: tuple[int, ...] = ()


_ANSWERS: Final[Mapping[str, _Answers]] = MappingProxyType(
    {
        "/v1/chat/completions": _Answers(replies.ChatReply, streams=True),
        "/v1/completions": _Answers(replies.CompletionReply, streams=True),
        "/v1/responses": _Answers(replies.ResponseReply, streams=True),
        "/v1/models": _Answers(replies.ModelsReply),
        "/v1/models/{name}": _Answers(replies.ModelReply),
        "/v1/graphs": _Answers(replies.GraphsReply),
        "/version": _Answers(replies.VersionReply),
        "/health": _Answers(replies.HealthReply, other=(503,)),
        "/metrics": _Answers(None),
        "/tokenize": _Answers(replies.TokenizeReply),
        "/detokenize": _Answers(replies.DetokenizeReply),
    }
)
_ERRORS: Final[Mapping[int, str]] = MappingProxyType(
    {
        400: "The request is wrong; `param` is the field.",
        401: "No key, or none of the server's.",
        403: "The Host header names a host that this server does not answer to.",
        404: "Another model, or no such path.",
        408: "The body stopped coming.",
        413: "The body is too large.",
        415: "The body does not say that it is JSON.",
        429: "Too much waits; with `Retry-After`.",
        500: "This request failed; its id is in the message and in the log.",
        503: "The engine failed and is made anew, or the server ends.",
        504: "It took longer than a request may.",
    }
)
_WITHOUT_BODY: Final = (401, 403, 404, 500, 503)


def document(api: FastAPI, *, keyed: bool) -> None:
    """Let ``api`` answer with the whole schema.

    Args:
        keyed: whether requests need a key.
    """

    def openapi() -> dict[str, Any]:
        if api.openapi_schema is None:
            plain = get_openapi(title=api.title, version=api.version, routes=api.routes)
            api.openapi_schema = _completed(plain, keyed)
        return api.openapi_schema

    api.openapi = openapi  # type: ignore[method-assign]


def _completed(schema: dict[str, Any], keyed: bool) -> dict[str, Any]:
    components = schema["components"]["schemas"]
    for name in _MODELS_OF_FASTAPI:
        components.pop(name, None)
    components |= _reply_schemas()
    for model in _strict_models(Strict):
        _tell_refusals(components.get(model.__name__, {}), model)
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            operation["responses"] = dict(_responses(path, method))
    if keyed:
        schema["components"]["securitySchemes"] = {_KEY: {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{_KEY: []}]
        schema["paths"]["/health"]["get"]["security"] = []
    return schema


def _responses(path: str, method: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every status that an operation may end with."""
    answers = _ANSWERS[path]
    content = {"text/plain": {"schema": {"type": "string"}}}
    if answers.model is not None:
        content = {_JSON: {"schema": {"$ref": _REF.format(model=answers.model.__name__)}}}
    for status in (200, *answers.other):
        streamed = {"text/event-stream": {"schema": {"type": "string"}}}
        both = content | streamed if answers.streams else content
        yield str(status), {"description": "The answer.", "content": both}
    error = {_JSON: {"schema": {"$ref": _REF.format(model=replies.ErrorReply.__name__)}}}
    for status, text in _ERRORS.items():
        if status not in answers.other and (method == "post" or status in _WITHOUT_BODY):
            yield str(status), {"description": text, "content": error}


def _reply_schemas() -> dict[str, Any]:
    wanted: list[type[BaseModel]] = [replies.ErrorReply]
    wanted += [answers.model for answers in _ANSWERS.values() if answers.model is not None]
    _, found = models_json_schema([(m, "validation") for m in wanted], ref_template=_REF)
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _strict_models(base: type[Strict]) -> Iterator[type[Strict]]:
    for model in base.__subclasses__():
        yield model
        yield from _strict_models(model)


def _tell_refusals(schema: dict[str, Any], model: type[Strict]) -> None:
    """Give fields that are known and not served the values that they may have."""
    properties = schema.get("properties", {})
    for name, field in model.model_fields.items():
        refused = refusal_of(field)
        known = properties.get(field.alias or name)
        if refused is not None and known is not None:
            why, neutral = refused
            properties[field.alias or name] = {
                "title": known.get("title", name),
                "enum": [*neutral],
                "description": f"This is {why}; these values are accepted without effect.",
            }
