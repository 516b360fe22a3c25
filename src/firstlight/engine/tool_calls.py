"""Calls that earlier answers made, on their way into a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firstlight.engine.refusal import wrong
from firstlight.errors import RequestError


def check_calls(messages: Sequence[Mapping[str, Any]], rendered: str) -> None:
    """Raise if a prompt lacks a function that an assistant's message calls.

    Args:
        messages: as they went to the chat template.
        rendered: what that made of them.

    Raises:
        RequestError: with the place of the call.
    """
    for place, name in _called(messages):
        if name not in rendered:
            raise RequestError(
                f"{place} would be lost: the model's chat template leaves out this call"
            )


def calls_with_values(calls: object, where: str) -> list[Any]:
    """Calls as chat templates read them, their arguments no JSON text but objects.

    Args:
        calls: in OpenAI's form, arguments as text; or as objects already.
        where: their place in the request.

    Raises:
        RequestError: arguments are text and no JSON object, with the place.
    """
    if not isinstance(calls, list | tuple):
        raise wrong(where, calls, "a list of calls")
    return [_with_values(call, f"{where}[{i}]") for i, call in enumerate(calls)]


def _with_values(call: Any, where: str) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    place = f"{where}.function.arguments"
    try:
        values = json.loads(function["arguments"] or "{}")
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise wrong(place, function["arguments"], "a JSON object, or its text")
    return {**call, "function": {**function, "arguments": values}}


def _called(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for m, message in enumerate(messages):
        calls = message.get("tool_calls")
        for c, call in enumerate(calls if isinstance(calls, list | tuple) else ()):
            function = call.get("function", call) if isinstance(call, Mapping) else None
            name = function.get("name") if isinstance(function, Mapping) else None
            if isinstance(name, str) and name:
                yield f"messages[{m}].tool_calls[{c}]", name
