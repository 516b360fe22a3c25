"""Schemas in any form become text, and alternatives that exclude each other become plain ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firstlight.core.json_schema import schema_text
from firstlight.errors import RequestError


def _object(kind: str, **more: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"kind": {"const": kind}, **more},
        "required": ["kind"],
    }


def _keyword(branches: list[Any], **root: Any) -> str:
    (found,) = json.loads(schema_text({"oneOf": branches, **root}, "x")).keys() & {"oneOf", "anyOf"}
    return str(found)


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "string"}, {"type": "integer"}],
        [{"type": ["string", "null"]}, {"type": "object"}],
        [{"const": "a"}, {"enum": ["b", "c"]}],
        [_object("cat"), _object("dog")],
    ],
)
def test_alternatives_that_exclude_each_other_become_any_of(branches: list[Any]) -> None:
    assert _keyword(branches) == "anyOf"


@pytest.mark.parametrize(
    "branches",
    [
        [{"type": "string"}, {"type": "string", "minLength": 3}],
        [{"type": "integer"}, {"type": "number"}],
        [{"enum": ["a", "b"]}, {"const": "b"}],
        [{"enum": [1]}, {"enum": [1.0]}],
        [_object("cat"), _object("cat", name={"type": "string"})],
        [_object("cat") | {"required": []}, _object("dog") | {"required": []}],
        [{"properties": {"k": {"const": "a"}}, "required": ["k"]}, _object("dog")],
        [{}, {"type": "string"}],
        [True, {"type": "string"}],
        [{"$ref": "#/$defs/none"}, {"type": "string"}],
    ],
)
def test_alternatives_that_may_overlap_stay(branches: list[Any]) -> None:
    assert _keyword(branches) == "oneOf"


def test_alternatives_are_followed_to_their_definitions() -> None:
    branches = [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]
    assert (
        _keyword(branches, **{"$defs": {"cat": _object("cat"), "dog": _object("dog")}}) == "anyOf"
    )


def test_values_are_no_schemas() -> None:
    value = {"oneOf": [{"type": "string"}, {"type": "null"}]}
    schema = {"enum": [value], "default": value, "const": value}
    assert json.loads(schema_text(schema, "x")) == schema


def test_a_property_may_be_called_like_a_keyword() -> None:
    schema = {"properties": {"oneOf": {"type": "string"}, "enum": {"type": "string"}}}
    assert json.loads(schema_text(schema, "x")) == schema


@pytest.mark.parametrize("schema", [3, "[1]", "{", [], {"minimum": float("nan")}, {"a": object()}])
def test_what_is_no_schema_is_refused_with_its_place(schema: Any) -> None:
    with pytest.raises(RequestError, match=r"^tools\[0\]"):
        schema_text(schema, "tools[0]")


@pytest.mark.parametrize("value", [-(2**63), 2**64, 10**400, 1e300])
def test_numbers_that_compilers_do_not_survive_are_refused(value: float) -> None:
    for schema in ({"enum": [value]}, {"properties": {"a": {"const": [value]}}}):
        with pytest.raises(RequestError, match=r"^tools\[0\] holds the number"):
            schema_text(schema, "tools[0]")


def test_texts_that_are_no_unicode_are_refused() -> None:
    with pytest.raises(RequestError, match=r"tools\[0\]"):
        schema_text({"enum": ["\ud800"]}, "tools[0]")
