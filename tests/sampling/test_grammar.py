"""Answers get the form that was asked for, whatever the logits say."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
import torch
from transformers import AutoTokenizer

from firstlight import SamplingParams, StructuredOutputs
from firstlight.errors import RequestError
from firstlight.sampling import Grammars, Sampler, SamplingState
from tests.conftest import TinyCheckpoint

MAX_TOKENS = 600
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3, "minItems": 1},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
CAT = {"properties": {"kind": {"const": "cat"}, "lives": {"enum": [7, 9]}}}
DOG = {"properties": {"kind": {"const": "dog"}, "good": {"type": "boolean"}}}
CLOSED = {"type": "object", "additionalProperties": False}
SCHEMAS: dict[str, Any] = {
    "object": PERSON,
    "union": {
        "oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}],
        "$defs": {
            "cat": CAT | CLOSED | {"required": ["kind", "lives"]},
            "dog": DOG | CLOSED | {"required": ["kind", "good"]},
        },
    },
    "recursive": {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": CLOSED
            | {
                "properties": {
                    "value": {"type": "integer", "minimum": 0, "maximum": 9},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["value", "next"],
            }
        },
    },
    "string": {"type": "string", "pattern": "^[a-c]{2,5}$"},
    "date": {"type": "string", "format": "date"},
    "number": {"type": "number", "multipleOf": 0.25, "minimum": -1, "maximum": 1},
    "tuple": {
        "type": "array",
        "prefixItems": [{"type": "boolean"}, {"type": "null"}],
        "items": False,
        "minItems": 2,
    },
}


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint: TinyCheckpoint) -> Any:
    return AutoTokenizer.from_pretrained(tiny_checkpoint("llama"))


@pytest.fixture(scope="module")
def grammars(tokenizer: Any) -> Grammars:
    return Grammars(tokenizer, [tokenizer.eos_token_id])


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def begin(grammars: Grammars, form: StructuredOutputs, **params: Any) -> SamplingState:
    asked = SamplingParams(structured_outputs=form, **params)
    return SamplingState(asked, grammar=grammars.start(form))


def generate(state: SamplingState, tokenizer: Any, seed: int = 0, liked: str = "") -> str:
    """The text of an answer to logits without sense, which end it as soon as they may.

    Args:
        liked: characters that are likelier than others.
    """
    noise = torch.Generator().manual_seed(seed)
    ends = {tokenizer.eos_token_id, *state.params.stop_token_ids}
    for _ in range(MAX_TOKENS):
        # More logits than tokens, as padded vocabularies have.
        logits = torch.randn(1, len(tokenizer) + 8, generator=noise) * 3
        logits[:, ids_of(tokenizer, liked)] += 20
        logits[:, list(ends)] = 100
        (sampled,) = Sampler().launch(logits, [state]).wait()
        assert sampled.error is None
        if sampled.token_id in ends:
            return str(tokenizer.decode(state.output_ids))
        state.output_ids.append(sampled.token_id)
    raise AssertionError("the answer has no end")


@pytest.mark.parametrize("temperature", [0, 1.5])
@pytest.mark.parametrize("name", SCHEMAS)
def test_answers_are_valid_under_their_schema(
    name: str, temperature: float, grammars: Grammars, tokenizer: Any
) -> None:
    form = StructuredOutputs(json=SCHEMAS[name])
    texts = set()
    for seed in range(4):
        state = begin(grammars, form, temperature=temperature, seed=seed)
        text = generate(state, tokenizer, seed)
        jsonschema.Draft202012Validator(SCHEMAS[name]).validate(json.loads(text))
        texts.add(text)
    assert len(texts) > 1


def test_answers_have_every_other_kind_of_form(grammars: Grammars, tokenizer: Any) -> None:
    regex = r"[0-9]{2}/[a-f\/]+\\"
    answer = generate(begin(grammars, StructuredOutputs(regex=regex)), tokenizer)
    assert re.fullmatch(regex, answer)
    choice = ("yes", 'a "no"\n', "\\n")
    assert generate(begin(grammars, StructuredOutputs(choice=choice)), tokenizer) in choice
    lark = 'start: "(" start ")" | "x"'
    answer = generate(begin(grammars, StructuredOutputs(grammar=lark)), tokenizer)
    assert re.fullmatch(r"\(*x\)*", answer)
    answer = generate(begin(grammars, StructuredOutputs(json_object=True)), tokenizer, liked='"}')
    assert isinstance(json.loads(answer), dict)


def test_penalties_do_not_break_the_form(grammars: Grammars, tokenizer: Any) -> None:
    penalties = {"repetition_penalty": 0.1, "presence_penalty": -2, "frequency_penalty": 2}
    state = begin(grammars, StructuredOutputs(json=PERSON), seed=1, top_p=0.9, **penalties)
    jsonschema.validate(json.loads(generate(state, tokenizer)), PERSON)


def test_a_token_that_is_to_stop_the_answer_waits_for_its_end(
    grammars: Grammars, tokenizer: Any
) -> None:
    stops = ids_of(tokenizer, 'a"0')
    form = StructuredOutputs(regex="xyz")
    state = begin(grammars, form, stop_token_ids=stops)
    assert generate(state, tokenizer) == "xyz"


def test_a_step_that_was_lost_changes_nothing(grammars: Grammars, tokenizer: Any) -> None:
    state = begin(grammars, StructuredOutputs(regex="[ab]{3}c"), temperature=0)
    logits = torch.randn(1, len(tokenizer), generator=torch.Generator().manual_seed(2))
    first = Sampler().launch(logits, [state]).wait()
    assert Sampler().launch(logits, [state]).wait() == first  # its token was not taken
    state.output_ids += ids_of(tokenizer, "ab")
    Sampler().launch(logits, [state]).wait()
    state.output_ids.clear()  # the engine took tokens back
    assert Sampler().launch(logits, [state]).wait() == first


def test_only_the_request_whose_answer_left_its_form_fails(
    grammars: Grammars, tokenizer: Any
) -> None:
    lost = begin(grammars, StructuredOutputs(regex="a+"), temperature=0)
    other = begin(grammars, StructuredOutputs(regex="a+"), temperature=0)
    lost.output_ids += ids_of(tokenizer, "b")
    logits = torch.zeros(3, len(tokenizer))
    states = [lost, SamplingState(SamplingParams(temperature=0)), other]
    failed, free, kept = Sampler().launch(logits, states).wait()
    assert failed.error is not None
    assert "form" in str(failed.error)
    assert free.token_id == 0
    assert tokenizer.decode([kept.token_id]).startswith("a")


def test_a_request_without_a_form_is_not_changed_by_one_with_it(
    grammars: Grammars, tokenizer: Any
) -> None:
    logits = torch.randn(2, len(tokenizer), generator=torch.Generator().manual_seed(3))
    free = SamplingState(SamplingParams(seed=4))
    alone = Sampler().launch(logits[:1], [free]).wait()
    free = SamplingState(SamplingParams(seed=4))
    form = StructuredOutputs(json_object=True)
    assert Sampler().launch(logits, [free, begin(grammars, form)]).wait()[:1] == alone


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"not": {}}, ""),
        ({"properties": {"a": {"items": {"contains": {}}}}}, ".properties.a.items"),
        ({"anyOf": [{"type": "null"}, {"uniqueItems": True}]}, ".anyOf[1]"),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "strin"}}}, ".$defs.x"),
        ({"properties": {"a": {"pattern": "(?=a)", "type": "string"}}}, ".properties.a"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1, "type": "string"}]}, ""),
        ({"type": "object", "x-guidance": {"lenient": True}, "not": {}}, ""),
    ],
)
def test_a_schema_that_cannot_be_kept_to_is_refused_with_the_place(
    schema: Any, place: str, grammars: Grammars
) -> None:
    with pytest.raises(RequestError) as caught:
        grammars.start(StructuredOutputs(json=schema, where="response_format"))
    assert str(caught.value).startswith(f"response_format{place} cannot be compiled: ")


@pytest.mark.parametrize("given", [{"regex": "("}, {"grammar": "start: nothing"}])
def test_a_form_that_cannot_be_compiled_is_refused(given: Any, grammars: Grammars) -> None:
    with pytest.raises(RequestError, match=r"^structured_outputs cannot be compiled: \S"):
        grammars.start(StructuredOutputs(**given))


LOOP = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}


@pytest.mark.parametrize("schema", [{"$ref": "#"}, LOOP], ids=["itself", "each other"])
def test_a_schema_that_refers_to_itself_alone_is_refused_at_once(
    schema: Any, grammars: Grammars
) -> None:
    """It compiles, and fails at its first token, which would be the server's fault."""
    with pytest.raises(RequestError, match=r"^structured_outputs.* no answer satisfies it"):
        grammars.start(StructuredOutputs(json=schema))


def test_a_refusal_of_an_address_repeats_no_password_and_no_query(grammars: Grammars) -> None:
    schema = {"$ref": "https://me:password@schemas.example/a.json?token=secret#x"}
    with pytest.raises(RequestError, match=r"schemas\.example/a\.json") as refused:
        grammars.start(StructuredOutputs(json=schema))
    assert "secret" not in str(refused.value)
    assert "password" not in str(refused.value)


def test_a_tokenizer_that_takes_no_forms_says_so_when_one_is_asked_for() -> None:
    class Slow:
        """A tokenizer without the library's."""

        added_tokens_decoder: dict[int, Any] = {}  # noqa: RUF012

    grammars = Grammars(Slow(), [1])
    grammars.warm()
    with pytest.raises(RequestError, match="Slow"):
        grammars.start(StructuredOutputs(json_object=True))


def test_blanks_between_the_parts_of_an_answer_are_bounded(
    grammars: Grammars, tokenizer: Any
) -> None:
    state = begin(grammars, StructuredOutputs(json_object=True), temperature=0)
    logits = torch.zeros(1, len(tokenizer))
    blank = ids_of(tokenizer, " ")
    logits[:, blank] = 50
    for _ in range(100):
        (sampled,) = Sampler().launch(logits, [state]).wait()
        state.output_ids.append(sampled.token_id)
        if sampled.token_id == tokenizer.eos_token_id:
            break
    assert 10 < tokenizer.decode(state.output_ids).count(" ") < 100


def test_thoughts_are_free_and_what_follows_them_has_the_form(
    grammars: Grammars, tokenizer: Any
) -> None:
    for thinking, begun in ((False, "<think>"), (True, "")):
        form = StructuredOutputs(
            regex="[0-9]{3}", thoughts=("<think>", "</think>"), thinking=thinking
        )
        state = begin(grammars, form)
        state.output_ids += ids_of(tokenizer, f"{begun}Hm, so <3 }} or what?</think>\n")
        assert re.fullmatch(r"\s*[0-9]{3}", generate(state, tokenizer).split("</think>")[1])


def test_a_model_may_answer_without_a_thought(grammars: Grammars, tokenizer: Any) -> None:
    form = StructuredOutputs(regex="[0-9]{3}", thoughts=("<think>", "</think>"))
    answer = generate(begin(grammars, form), tokenizer, liked="0123456789")
    assert re.fullmatch("[0-9]{3}", answer)
