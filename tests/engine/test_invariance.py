"""Compiled kernels compute a row as if it were alone: company and padding change no bit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from firstlight import LLM, SamplingParams
from tests.cases.steps import letters
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Message, tiny_llm, user
from tests.pictures import picture

PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=5)
ASKED: list[Message] = user(picture(48, 64, seed=3), letters(37, seed=1))
OTHERS = [user(letters(1 + 17 * n, seed=n)) for n in range(5)]


@pytest.fixture(params=["float32", "bfloat16"])
def llm(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> Iterator[LLM]:
    with tiny_llm(
        tiny_checkpoint("qwen3_vl"),
        dtype=request.param,
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


def test_padding_and_graphs_change_no_bit(llm: LLM, tiny_checkpoint: TinyCheckpoint) -> None:
    replayed = llm.chat([ASKED], PARAMS)[0]
    dtype = llm.parts.config.dtype
    with tiny_llm(tiny_checkpoint("qwen3_vl"), dtype=dtype, eager=True) as eager:
        plain = eager.chat([ASKED], PARAMS)[0]
    assert plain.logprobs == replayed.logprobs
