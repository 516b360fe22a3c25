"""A form is one of several kinds, and goes with nothing that would end or stretch an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from firstlight import SamplingParams, StructuredOutputs
from firstlight.errors import RequestError


def test_equal_schemas_are_equal_forms_however_they_are_given() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    forms = {StructuredOutputs(json=schema), StructuredOutputs(json=json.dumps(schema))}
    assert len(forms) == 1


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"json": {}, "regex": "a"},
        {"choice": []},
        {"choice": "ab"},
        {"choice": ["a", ""]},
        {"regex": 3},
        {"regex": "\ud800"},
        {"json": "{"},
        {"json_object": 1},
        {"grammar": 'start: %json {"enum": [-9223372036854775808]}'},
        {"grammar": 'start: %json {"enum": [-9e18]}'},
    ],
)
def test_what_is_no_form_is_refused_by_its_field(given: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"^structured_outputs"):
        StructuredOutputs(**given)


@pytest.mark.parametrize("given", [{"ignore_eos": True}, {"min_tokens": 1}])
def test_a_form_does_not_go_with_what_keeps_an_answer_from_its_end(given: Any) -> None:
    form = StructuredOutputs(json_object=True)
    with pytest.raises(RequestError, match=rf"^{next(iter(given))} = .*structured_outputs"):
        SamplingParams(structured_outputs=form, **given)


def test_a_form_has_its_own_type() -> None:
    with pytest.raises(RequestError, match=r"^structured_outputs = "):
        SamplingParams(structured_outputs={"json": {}})  # type: ignore[arg-type]
