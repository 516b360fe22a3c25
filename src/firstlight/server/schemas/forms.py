"""What form an answer is asked to have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field
from pydantic_core import PydanticCustomError

from firstlight.core.structured_outputs import StructuredOutputs
from firstlight.server.schemas.fields import Strict, only

_SCHEMA = "response_format.json_schema.schema"


class TextFormat(Strict):
    """Any text."""

    type: Literal["text"]


class JsonObjectFormat(Strict):
    """Any JSON object."""

    type: Literal["json_object"]


class JsonSchema(Strict):
    """A schema and its name."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    description: Annotated[str, Field(max_length=10_000)] | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    """JSON that is valid under a schema; strictly, whatever ``strict`` says."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


ResponseFormat = Annotated[TextFormat | JsonObjectFormat | JsonSchemaFormat, Discriminator("type")]


class FormFields(Strict):
    """The fields of ``structured_outputs``, of which one is given."""

    json_: dict[str, Any] | str | bool | None = Field(None, alias="json")
    json_object: bool | None = None
    regex: Annotated[str, Field(min_length=1, max_length=100_000)] | None = None
    choice: Annotated[list[str], Field(min_length=1, max_length=10_000)] | None = None
    grammar: Annotated[str, Field(min_length=1, max_length=1_000_000)] | None = None
    structural_tag: Annotated[str | None, only(None)] = None
    disable_any_whitespace: Annotated[bool | None, only(None, False)] = None
    disable_additional_properties: Annotated[bool | None, only(None, False)] = None
    whitespace_pattern: Annotated[str | None, only(None)] = None


def form_of(
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None,
    fields: FormFields | None,
) -> StructuredOutputs | None:
    """The form that is asked for; None for any text.

    Raises:
        RequestError: a schema is none, or not exactly one form is given.
    """
    if isinstance(response_format, JsonObjectFormat):
        return StructuredOutputs(json_object=True, where="response_format")
    if isinstance(response_format, JsonSchemaFormat):
        schema = response_format.json_schema.schema_
        return StructuredOutputs(json=True if schema is None else schema, where=_SCHEMA)
    if fields is None:
        return None
    return StructuredOutputs(
        json=fields.json_,
        json_object=bool(fields.json_object),
        regex=fields.regex,
        choice=tuple(fields.choice or ()),
        grammar=fields.grammar,
    )


def check_one_form(response_format: object, fields: FormFields | None) -> None:
    """Raise if two forms are asked for."""
    if fields is not None and not isinstance(response_format, TextFormat | None):
        raise PydanticCustomError(
            "structured_outputs", "response_format asks for another form; accepted: one of them"
        )
