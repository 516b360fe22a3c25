"""Whatever schema is taken, the answer is valid under it, as another library sees it."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from firstlight import SamplingParams, StructuredOutputs
from firstlight.errors import RequestError
from firstlight.sampling import Grammars, Sampler, SamplingState
from tests.conftest import TinyCheckpoint

Schema = dict[str, Any]
VALUES = st.sampled_from(["a", 'b"c', "é\n", 1, -2, 2.5, None, True, [1], {"x": [None]}])
NAMES = st.sampled_from(["a", "b", "é", 'c"', "d e", ""])


@st.composite
def numbers(draw: st.DrawFn) -> Schema:
    low = draw(st.integers(-60, 60))
    high = low + draw(st.integers(5, 90))
    names = draw(st.sampled_from([("minimum", "maximum"), ("exclusiveMinimum", "maximum")]))
    found: Schema = {"type": draw(st.sampled_from(["integer", "number"]))}
    found |= dict(zip(names, (low, high), strict=True))
    step = draw(st.sampled_from([None, 1, 2, 5]))
    return found if step is None else found | {"multipleOf": step}


LEAVES = st.one_of(
    numbers(),
    st.just({"type": "boolean"}),
    st.builds(lambda v: {"const": v}, VALUES),
    st.builds(lambda v: {"enum": v}, st.lists(VALUES, min_size=1, max_size=4)),
    st.builds(
        lambda low, more: {"type": "string", "minLength": low, "maxLength": low + more},
        st.integers(0, 4),
        st.integers(0, 5),
    ),
    st.builds(
        lambda pattern: {"type": "string", "pattern": pattern},
        st.sampled_from(["^[a-z]{2,4}$", "^\\d{3}-\\d{2}$", "^(foo|bar)$", "^\\w{1,3}/é?$"]),
    ),
    st.builds(
        lambda name: {"type": "string", "format": name}, st.sampled_from(["uuid", "ipv4", "time"])
    ),
)


@st.composite
def objects(draw: st.DrawFn, inner: st.SearchStrategy[Schema]) -> Schema:
    properties = draw(st.dictionaries(NAMES, inner, min_size=1, max_size=3))
    required = draw(st.lists(st.sampled_from(list(properties)), unique=True))
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def nested(inner: st.SearchStrategy[Schema]) -> st.SearchStrategy[Schema]:
    arrays = st.builds(
        lambda items, low, more: {
            "type": "array", "items": items, "minItems": low, "maxItems": low + more,
        },
        inner, st.integers(0, 2), st.integers(0, 2),
    )  # fmt: skip
    several = st.lists(inner, min_size=1, max_size=3)
    tuples = st.builds(
        lambda items: {
            "type": "array", "prefixItems": items, "items": False, "minItems": len(items),
        },
        several,
    )  # fmt: skip
    choices = st.builds(lambda branches: {"anyOf": branches}, several)
    unions = st.builds(lambda branches: {"oneOf": branches}, several)
    return st.one_of(objects(inner), arrays, tuples, choices, unions)


SCHEMAS = st.recursive(LEAVES, nested, max_leaves=8)


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint: TinyCheckpoint) -> Any:
    return AutoTokenizer.from_pretrained(tiny_checkpoint("llama"))


def check(schema: Schema, seed: int, tokenizer: Any) -> None:
    form = StructuredOutputs(json=schema)
    end = tokenizer.eos_token_id
    try:
        grammar = Grammars(tokenizer, [end]).start(form)
    except RequestError:  # what cannot be kept to is refused
        assume(False)
        return
    state = SamplingState(SamplingParams(structured_outputs=form, seed=seed), grammar=grammar)
    noise = torch.Generator().manual_seed(seed)
    liked = tokenizer('"}],', add_special_tokens=False)["input_ids"]
    for _ in range(500):
        logits = torch.randn(1, len(tokenizer), generator=noise) * 3
        logits[:, liked] += 5
        logits[:, end] = 100
        (sampled,) = Sampler().launch(logits, [state]).wait()
        assert sampled.error is None, sampled.error
        if sampled.token_id == end:
            text = tokenizer.decode(state.output_ids)
            jsonschema.Draft202012Validator(schema).validate(json.loads(text))
            return
        state.output_ids.append(sampled.token_id)


@settings(max_examples=40)
@given(SCHEMAS, st.integers(0, 1000))
def test_answers_are_valid_under_any_schema_that_is_taken(
    tokenizer: Any, schema: Schema, seed: int
) -> None:
    check(schema, seed, tokenizer)


@pytest.mark.slow
@settings(max_examples=3000)
@given(SCHEMAS, st.integers(0, 10**6))
def test_answers_are_valid_under_many_schemas(tokenizer: Any, schema: Schema, seed: int) -> None:
    check(schema, seed, tokenizer)
