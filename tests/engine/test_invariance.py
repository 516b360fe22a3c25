"""Compiled kernels compute a row as if it were alone: company and padding change no bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from firstlight import LLM, SamplingParams
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


def test_padding_and_graphs_change_no_bit(
    llm: LLM, tiny_checkpoint: TinyCheckpoint, request: pytest.FixtureRequest
) -> None:
    replayed = llm.chat([ASKED], PARAMS)[0]
    own = KINDS[request.node.callspec.params["llm"]]
    with tiny_llm(tiny_checkpoint("qwen3_vl"), **own, eager=True) as eager:
        plain = eager.chat([ASKED], PARAMS)[0]
    assert plain.logprobs == replayed.logprobs
