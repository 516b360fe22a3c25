"""What a call may hold beside the declared arguments: nothing, unless the schema says so."""

from __future__ import annotations

from typing import Any

import pytest

from firstlight.engine.tools.declared import declared_only

CITY = {"type": "string"}


def test_a_schema_that_lists_properties_is_closed() -> None:
    closed = declared_only({"type": "object", "properties": {"city": CITY}})
    assert closed["additionalProperties"] is False
    assert declared_only({"properties": {}})["additionalProperties"] is False


def test_objects_inside_are_closed_likewise() -> None:
    inner: dict[str, Any] = {"type": "object", "properties": {"city": CITY}}
    listed = {"type": "array", "items": inner}
    closed = declared_only({"properties": {"one": inner, "many": listed}})
    assert closed["properties"]["one"]["additionalProperties"] is False
    assert closed["properties"]["many"]["items"]["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": CITY}, "additionalProperties": CITY},
        {"type": "object", "properties": {"a": CITY}, "additionalProperties": True},
        {"type": "object", "properties": {"a": CITY}, "anyOf": [{"required": ["b"]}]},
        {"type": "object", "properties": {"a": CITY}, "patternProperties": {"^x": CITY}},
    ],
)
def test_a_schema_that_says_what_else_there_may_be_is_left_as_it_is(schema: dict[str, Any]) -> None:
    assert declared_only(schema) == schema


def test_the_schema_that_was_given_is_not_changed() -> None:
    schema = {"properties": {"a": {"properties": {"b": CITY}}}}
    declared_only(schema)
    assert schema == {"properties": {"a": {"properties": {"b": CITY}}}}
