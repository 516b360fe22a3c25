"""Compiled kernels compute a row as if it were alone: company and padding change no bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.reason import Phase
from tests.cases.steps import letters
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Message, tiny_llm, user
from tests.pictures import picture

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=5)
ASKED: list[Message] = user(picture(48, 64, seed=3), letters(37, seed=1))
OTHERS = [user(letters(1 + 17 * n, seed=n)) for n in range(5)]


KINDS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "int4": {"dtype": "bfloat16", "quantization": "int4", "dynamic_quantization": "on"},
    "int8": {"dtype": "float32", "quantization": "int8", "dynamic_quantization": "off"},
}
"""Settings of how rows are multiplied."""


@pytest.fixture(params=KINDS)
def llm(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> Iterator[LLM]:
    with tiny_llm(
        tiny_checkpoint("qwen3_vl"),
        **KINDS[request.param],
        prefill_buckets=(64, 1024),
        max_num_seqs=12,
        proof="off",
        decode_buckets=(2, 12),
    ) as built:
        if built.parts.native.kernels is None:
            pytest.skip(f"no compiled kernels here: {built.parts.native.reason}")
        yield built


def test_neighbours_change_no_bit_of_the_log_probabilities(llm: LLM) -> None:
    alone = llm.chat([ASKED], PARAMS)[0]
    among = llm.chat([*OTHERS, ASKED, *OTHERS], PARAMS)[len(OTHERS)]
    assert among.token_ids == alone.token_ids
    assert among.logprobs == alone.logprobs


@pytest.fixture(params=["float32", "bfloat16"])
def remembering(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> Iterator[LLM]:
    """Pages of 16, whatever a prompt is cut into, and a prefix cache that tests may flush."""
    with tiny_llm(
        tiny_checkpoint("qwen3_vl"),
        dtype=request.param,
        prefill_buckets=(16, 64),
        max_batch_tokens=64,
        page_size=16,
        prefix_cache=True,
        proof="off",
    ) as built:
        if built.parts.native.kernels is None:
            pytest.skip(f"no compiled kernels here: {built.parts.native.reason}")
        yield built


@pytest.mark.parametrize("length", [1, 7, 16, 41, 90])
def test_the_prefix_cache_changes_no_bit_of_an_identical_request(
    length: int, remembering: LLM
) -> None:
    asked = user(letters(length, seed=2), picture(48, 64, seed=3), letters(length, seed=4))
    remembering.flush_caches()
    first = remembering.chat([asked], PARAMS)[0]
    for _ in range(2):
        again = remembering.chat([asked], PARAMS)[0]
        assert again.usage.cached_tokens == again.usage.prompt_tokens - 1
        assert again.timings.steps[0].decision.phase is Phase.DECODE
        assert again.logprobs == first.logprobs


@pytest.mark.parametrize("rest", range(1, 10))
def test_the_prefix_cache_changes_no_bit_of_another_question(rest: int, remembering: LLM) -> None:
    head = letters(30, seed=2)
    parts = picture(48, 64, seed=3), head + letters(rest, seed=5)
    remembering.flush_caches()
    alone = remembering.chat([user(*parts)], PARAMS)[0]
    remembering.flush_caches()
    remembering.chat([user(parts[0], head + letters(20, seed=6))], PARAMS)
    behind = remembering.chat([user(*parts)], PARAMS)[0]
    assert behind.usage.cached_tokens > 30
    assert behind.logprobs == alone.logprobs


def test_the_chunks_of_a_prompt_change_no_bit(tiny_checkpoint: TinyCheckpoint) -> None:
    asked, found = user(letters(61, seed=1)), []
    for tokens in (256, 64, 9, 5, 1):
        with tiny_llm(
            tiny_checkpoint("qwen3_vl"),
            max_batch_tokens=tokens,
            max_num_seqs=1,
            prefill_buckets=(min(tokens, 16),),
            proof="off",
        ) as llm:
            if llm.parts.native.kernels is None:
                pytest.skip(f"no compiled kernels here: {llm.parts.native.reason}")
            found.append(llm.chat([asked], PARAMS)[0].logprobs)
    assert all(logprobs == found[0] for logprobs in found)


def test_padding_and_graphs_change_no_bit(
    llm: LLM, tiny_checkpoint: TinyCheckpoint, request: pytest.FixtureRequest
) -> None:
    replayed = llm.chat([ASKED], PARAMS)[0]
    own = KINDS[request.node.callspec.params["llm"]]
    with tiny_llm(tiny_checkpoint("qwen3_vl"), **own, eager=True) as eager:
        plain = eager.chat([ASKED], PARAMS)[0]
    assert plain.logprobs == replayed.logprobs
