"""Forms of answers through an engine: many at once, in little memory, cut off by their limit."""

from __future__ import annotations

import json

import jsonschema
import pytest

from firstlight import LLM, SamplingParams, StructuredOutputs
from firstlight.core.output import FinishReason
from firstlight.errors import RequestError
from tests.cases.steps import letters
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm, user
from tests.pictures import picture

SCHEMA = {
    "type": "object",
    "properties": {
        "word": {"type": "string", "pattern": "^[a-z]{3,6}$"},
        "list": {"type": "array", "items": {"enum": [True, None]}, "maxItems": 3},
    },
    "required": ["word", "list"],
    "additionalProperties": False,
}
FORM = StructuredOutputs(json=SCHEMA)
PROMPTS = [
    user(*([picture(48, 32, seed=i)] if i % 2 else []), letters(9 + i, seed=i)) for i in range(6)
]


def engine(checkpoints: TinyCheckpoint, pages: int | None = None) -> LLM:
    path = checkpoints("qwen3_vl")
    return tiny_llm(path, max_num_seqs=6, max_context=256, kv_pages=pages, eager=True)


def test_requests_that_were_preempted_keep_their_form(tiny_checkpoint: TinyCheckpoint) -> None:
    params = SamplingParams(temperature=1.3, seed=3, max_tokens=200, structured_outputs=FORM)
    expected = engine(tiny_checkpoint).chat(PROMPTS, params)
    tight = engine(tiny_checkpoint, pages=70)
    answers = tight.chat(PROMPTS, params)
    assert tight.parts.scheduler.stats.preempted > 0
    assert [a.text for a in answers] == [a.text for a in expected]
    finished = [a for a in answers if a.finish_reason is FinishReason.STOP]
    assert len(finished) > 2
    for answer in finished:
        jsonschema.validate(json.loads(answer.text), SCHEMA)


def test_only_the_limit_of_tokens_cuts_a_form(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = engine(tiny_checkpoint)
    for limit in (3, 200):
        params = SamplingParams(
            temperature=0,
            max_tokens=limit,
            structured_outputs=StructuredOutputs(regex="([a-z][0-9]){9}"),
        )
        answer = llm.chat(PROMPTS[0], params)
        assert answer.finish_reason is (FinishReason.LENGTH if limit == 3 else FinishReason.STOP)
        assert (len(answer.text) == 18) == (limit == 200)


def test_a_form_that_cannot_be_compiled_is_refused_before_pictures_are_read(
    tiny_checkpoint: TinyCheckpoint,
) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputs(json={"not": {}}))
    question = [{"role": "user", "content": [{"type": "image", "image": "/none.png"}]}]
    with pytest.raises(RequestError, match=r"^structured_outputs\.json cannot"):
        engine(tiny_checkpoint).chat(question, params)
