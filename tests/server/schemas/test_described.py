"""What a field accepts, said in a few words."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from firstlight.server.schemas.described import described, fields_at, schema_at


class One(BaseModel):
    type: Literal["one"]
    size: Annotated[int, Field(ge=1, le=8)] | None = None


class Two(BaseModel):
    type: Literal["two"]
    words: Annotated[list[str], Field(min_length=1, max_length=4)]


class Body(BaseModel):
    parts: list[One | Two] | str
    ratio: Annotated[float, Field(gt=0, le=1.5)] = 1.0
    table: dict[str, Annotated[float, Field(ge=-1, le=1)]] = {}
    name: Annotated[str, Field(max_length=5)] | None = None


ROOT = Body.model_json_schema()
BODY = {"parts": [{"type": "one", "size": 9}, {"type": "two"}, {"type": "three"}]}


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        (["ratio"], "number (above 0 to 1.5)"),
        (["name"], "string (at most 5 characters) or null"),
        (["table"], "object of number (-1 to 1)"),
        (["table", "a"], "number (-1 to 1)"),
        (["parts"], "list of values or string"),
        (["parts", 0, "size"], "integer (1 to 8) or null"),
        (["parts", 1, "words"], "list (1 to 4) of string"),
        (["parts", 2, "type"], "'one' or 'two'"),
        (["nothing"], ""),
    ],
)
def test_a_place_is_described_by_the_branch_that_is_meant(steps: list[Any], text: str) -> None:
    assert described(schema_at(ROOT, BODY, steps), ROOT) == text


def test_null_may_be_left_out() -> None:
    assert (
        described(ROOT["properties"]["name"], ROOT, null=False) == "string (at most 5 characters)"
    )


def test_the_fields_of_an_object_are_those_of_what_it_is_meant_to_be() -> None:
    assert fields_at(ROOT, BODY, []) == ["parts", "ratio", "table", "name"]
    assert fields_at(ROOT, BODY, ["parts", 0]) == ["type", "size"]
    assert fields_at(ROOT, BODY, ["parts", 2]) == ["type", "size", "words"]
