"""Calls that earlier answers made, on their way into a prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

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


def _called(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    for m, message in enumerate(messages):
        calls = message.get("tool_calls")
        for c, call in enumerate(calls if isinstance(calls, list | tuple) else ()):
            function = call.get("function", call) if isinstance(call, Mapping) else None
            name = function.get("name") if isinstance(function, Mapping) else None
            if isinstance(name, str) and name:
                yield f"messages[{m}].tool_calls[{c}]", name
