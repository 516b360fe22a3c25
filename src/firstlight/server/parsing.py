"""Bodies: read fast, refused with the place and the reason of what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, get_args

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic_core import from_json
from pydantic_core.core_schema import ErrorType

from firstlight.media.brief import brief
from firstlight.server.failures import Failure, invalid
from firstlight.server.schemas.described import Schema, described, fields_at, schema_at

_LONG = 60  # characters of a value that a message repeats
_TAGS: Final = ("role", "type")
_BUILT_IN: Final = frozenset(get_args(ErrorType))


class JsonRequest(Request):
    """A request whose body is parsed by pydantic's parser, in a fraction of the standard one's
    time for the long strings that pictures are."""

    async def json(self) -> Any:
        """The body's value; the bytes are let go.

        Raises:
            ApiError: it is no JSON, too deeply nested, or holds NaN or an infinity.
        """
        body = await self.body()
        try:
            value = from_json(body, allow_inf_nan=False)
        except ValueError as error:
            raise invalid(f"the body is no JSON: {error}", code="invalid_json") from error
        self._body = b""
        return value


class JsonRoute(APIRoute):
    """A route whose handler gets a :class:`JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler."""
        handle = super().get_route_handler()

        async def parsing(request: Request) -> Response:
            return await handle(JsonRequest(request.scope, request.receive))

        return parsing


def failure_of_validation(error: RequestValidationError, model: type[BaseModel] | None) -> Failure:
    """What is wrong with a body, by the place that is most precisely at fault.

    The message says the place, the value, shortened, and what is accepted there.

    Args:
        model: of the body, for what is accepted; None if the route has none.
    """
    if isinstance(error.body, bytes):
        message = "the body must be JSON, with the header Content-Type: application/json"
        return Failure(415, message, code="unsupported_media_type")
    found = [(_steps(e["loc"], e["type"], error.body), e) for e in error.errors()]
    found.sort(key=lambda pair: -len(pair[0]))
    steps, first = found[0]
    same = [e for at, e in found if at == steps]
    schema = {} if model is None else model.model_json_schema()
    if not steps:  # about several fields; the error says which of them it is called by
        field = str((first.get("ctx") or {}).get("field", first["type"]))
        steps = [field] if field in schema.get("properties", ()) else []
    message = _message(steps, same, error.body, schema)
    code = "unsupported_parameter" if first["type"] == "not_supported" else None
    return Failure(400, message, param=_written(steps) or None, code=code)


def _message(
    steps: Sequence[int | str], errors: Sequence[Mapping[str, Any]], body: Any, schema: Schema
) -> str:
    """About the errors at one place."""
    place = _written(steps) or "the request"
    own = [e["msg"] for e in errors if e["type"] not in _BUILT_IN]
    kinds = {e["type"] for e in errors}
    if "extra_forbidden" in kinds:
        known = fields_at(schema, body, steps[:-1])
        close = get_close_matches(str(steps[-1]), known, n=1) if steps else []
        return f"{place}: no such field" + (f"; did you mean {close[0]!r}?" if close else "")
    if own:
        kind = errors[0]["type"]
        if (
            kind in _TAGS and _inside(_at(body, steps), kind)[1]
        ):  # which kind of object it is, is what is wrong
            place, steps = f"{place}.{kind}", [*steps, kind]
        shown = f" = {_shown(body, steps)}" if steps else ""
        return f"{place}{shown}: {'; or '.join(dict.fromkeys(own))}"
    tagged = next((e for e in errors if e["type"].startswith("union_tag")), None)
    if tagged is not None:
        name = str(tagged["ctx"]["discriminator"]).strip("'")
        accepted = described(schema_at(schema, body, [*steps, name]), schema)
        given = f" = {brief(str(tagged['ctx']['tag']))}" if "tag" in tagged["ctx"] else ": missing"
        return f"{place}.{name}{given}; accepted: {accepted}"
    accepted = described(schema_at(schema, body, steps), schema) or _lower(str(errors[0]["msg"]))
    if kinds == {"missing"}:
        return f"{place}: missing; accepted: {accepted}"
    return f"{place} = {_shown(body, steps)}; accepted: {accepted}"


def _at(body: Any, steps: Sequence[int | str]) -> Any:
    for step in steps:
        body, _ = _inside(body, step)
    return body


def _shown(body: Any, steps: Sequence[int | str]) -> str:
    """The value at a place of a body, short, and never a picture's data or an address's query."""
    value = _at(body, steps)
    if isinstance(value, str):
        return brief(value, _LONG)
    if isinstance(value, list):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object of {len(value)} fields"
    try:
        text = json.dumps(value)
    except ValueError:  # more digits than Python writes
        return "a number of very many digits"
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."


def _steps(loc: Sequence[int | str], kind: str, body: Any) -> list[int | str]:
    """The part of a location that is in the body: pydantic also names branches of unions."""
    steps: list[int | str] = []
    at = body
    for i, step in enumerate(loc):
        # A part's type names its branch, and may also be the name of one of its fields.
        if isinstance(at, dict) and at.get("type") == step and set(loc[i + 1 : i + 2]) & at.keys():
            continue
        inside, found = _inside(at, step)
        if found:
            at = inside
        elif not (i and i == len(loc) - 1 and kind == "missing"):
            continue
        steps.append(step)
    return steps


def _inside(value: Any, step: int | str) -> tuple[Any, bool]:
    """What is at a key or an index of a value, and whether anything is."""
    if isinstance(value, dict) and step in value:
        return value[step], True
    if isinstance(value, list) and isinstance(step, int) and step < len(value):
        return value[step], True
    return None, False


def _written(steps: Sequence[int | str]) -> str:
    text = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in steps)
    return text.removeprefix(".")[:200]


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]
