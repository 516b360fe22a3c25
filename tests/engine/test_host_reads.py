"""Where a step would wait for a GPU: at named places, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstlight import LLM, SamplingParams
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, tiny_llm, user
from tests.host_reads import HostReads
from tests.pictures import picture

OWN = ("attention/cpu.py", "attention/chunk.py")
"""The CPU's attention kernel, in whose place another one runs on a GPU."""

ANSWER = ("sampling/sampler.py", "_to_host")
"""The tokens: one copy a step."""
DRAW = ("sampling/sampler.py", "_draw")
CPU_ONLY = {
    ("sampling/filters.py", "top_k"),  # whether tokens tie at the edge; a GPU treats them anyway
    ("sampling/filters.py", "top_p"),  # which rows need a whole sort; a GPU sorts all
    ("sampling/filters.py", "_nucleus_in_head"),
}
LOGPROBS = ("sampling/logprobs.py", "token_logprobs")

PLACES = {
    "greedy": (SamplingParams(temperature=0), {ANSWER}),
    "penalties": (
        SamplingParams(
            temperature=0, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.5,
            min_tokens=4, logit_bias={5: 1.0},
        ),
        {ANSWER},
    ),
    "drawn": (SamplingParams(temperature=1, seed=1), {ANSWER, DRAW}),
    "filtered": (
        SamplingParams(temperature=1, seed=1, top_k=20, top_p=0.9, min_p=0.01),
        {ANSWER, DRAW} | CPU_ONLY,
    ),
    "log probabilities": (
        SamplingParams(temperature=0, logprobs=3),
        {ANSWER, LOGPROBS} | CPU_ONLY,
    ),
}  # fmt: skip
FAMILIES = ["llama", "qwen3_vl", "gemma3_vl"]


@pytest.fixture(scope="module", params=FAMILIES)
def llm(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(tiny_checkpoint(request.param), native="off")


def parts(llm: LLM) -> list[Part]:
    text = "Which colour is it, and why?"
    takes_pictures = llm.parts.model.adapter.media_token_id is not None
    return [picture(48, 32, seed=1), text] if takes_pictures else [text]


@pytest.mark.parametrize("case", PLACES)
def test_a_step_reads_the_device_only_where_its_tokens_leave(llm: LLM, case: str) -> None:
    """Prefill and decode, with a picture where the model takes one; the encoder has its own."""
    params, allowed = PLACES[case]
    loop = llm.parts.engine._step
    plain = loop.run
    found: set[tuple[str, str]] = set()

    def audited(plan: object) -> object:
        with HostReads(ignoring=OWN) as reads:
            result = plain(plan)  # type: ignore[arg-type]
        found.update(reads.places())
        return result

    loop.run = audited  # type: ignore[method-assign, assignment]
    try:
        llm.chat(user(*parts(llm)), replace(params, max_tokens=5))
    finally:
        loop.run = plain  # type: ignore[method-assign]
    assert found <= allowed
    assert allowed - CPU_ONLY <= found
