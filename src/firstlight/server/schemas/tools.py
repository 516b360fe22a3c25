"""Functions that a model may call, which of them it has to, and the calls of earlier answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError, from_json

from firstlight.engine.tools.rules import NAME
from firstlight.server.schemas.fields import Strict, ignored

Name = Annotated[str, Field(pattern=NAME)]


def _of_object(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type", "object")
    if kind != "object":
        raise PydanticCustomError(
            "parameters", "a function takes an object by names; accepted: a schema of type object"
        )
    return schema


Parameters = Annotated[dict[str, Any], AfterValidator(_of_object)]
"""What a function takes, as the JSON schema of an object."""


class Function(Strict):
    """A function and what it takes."""

    name: Name
    description: Annotated[str, Field(max_length=100_000)] | None = None
    parameters: Parameters | None = None
    strict: bool | None = None


class Tool(Strict):
    """A function, in its wrapping."""

    type: Literal["function"]
    function: Function


class FunctionName(Strict):
    """The name of a function."""

    name: Name


class NamedTool(Strict):
    """The function that is to be called."""

    type: Literal["function"]
    function: FunctionName


def _is_object(value: str) -> str:
    _values(value)
    return value


Arguments = Annotated[str, AfterValidator(_is_object)]
"""What a function was called with: an object as JSON text."""


class Called(Strict):
    """A function and what it was called with, an object as JSON text."""

    name: Name
    arguments: Arguments


class ToolCall(Strict):
    """A call in an answer of before."""

    id: Annotated[str, Field(max_length=1000)] | None = None
    type: Literal["function"] = "function"
    function: Called
    index: Any = ignored("calls stand in order")


def with_values(call: dict[str, Any]) -> dict[str, Any]:
    """A call as chat templates read it, its arguments no text but an object."""
    function = call["function"]
    values = _values(function["arguments"])
    kept = {name: value for name, value in call.items() if name != "index"}
    return kept | {"function": function | {"arguments": values}}


def check_choice(tools: Sequence[Tool], choice: object) -> None:
    """Raise if two tools have one name, or if one is to be called that is not there."""
    names = [tool.function.name for tool in tools]
    double = next((name for name in names if names.count(name) > 1), None)
    if double is not None:
        raise PydanticCustomError("tools", "two tools are called '{name}'", {"name": double})
    if choice == "required" and not names:
        raise PydanticCustomError("tool_choice", "this needs tools, and there are none")
    if isinstance(choice, NamedTool) and choice.function.name not in names:
        raise PydanticCustomError(
            "tool_choice",
            "'{name}' is none of the tools: {names}",
            {"name": choice.function.name, "names": ", ".join(names) or "none"},
        )


def _values(text: str) -> dict[str, Any]:
    try:
        value = from_json(text or "{}", allow_inf_nan=False)
    except ValueError as error:
        raise PydanticCustomError(
            "arguments", "arguments are no JSON: {error}", {"error": str(error)}
        ) from error
    if not isinstance(value, dict):
        raise PydanticCustomError("arguments", "arguments must be a JSON object")
    return value
