"""Arguments that a call may hold: those that its function declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_OPEN: Final = frozenset(
    {
        "additionalProperties",
        "unevaluatedProperties",
        "patternProperties",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
    }
)
"""Keywords by which a schema says itself what else there may be."""


def declared_only(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema without arguments that it does not name, unless it says something about them.

    A schema that lists ``properties`` and is silent about others allows any; a function takes none
    but its parameters, and a model that may write others writes them. What is valid under the
    result is valid under ``schema``. Objects inside are closed likewise.
    """
    closed = dict(schema)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        closed["properties"] = {name: _inside(value) for name, value in properties.items()}
        if not _OPEN & schema.keys():
            closed["additionalProperties"] = False
    if "items" in schema:
        closed["items"] = _inside(schema["items"])
    return closed


def _inside(value: Any) -> Any:
    return declared_only(value) if isinstance(value, Mapping) else value
