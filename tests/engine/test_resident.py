"""What an engine says is in memory is what the system says."""

from __future__ import annotations

import sys

import pytest
import torch

from firstlight import LLM, SamplingParams
from firstlight.engine.resident import resident, status_bytes, touched
from firstlight.memory.untouched import untouched_zeros
from tests.conftest import TinyCheckpoint
from tests.engine.engines import tiny_llm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the system tells it on Linux")

MIB = 1 << 20


@pytest.fixture(scope="module")
def llm(tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(tiny_checkpoint("qwen3"), prefill_buckets=(32,), proof="off")


def test_the_parts_add_up_to_what_the_system_says(llm: LLM) -> None:
    told = llm.inspect()["resident"]
    now = told["now_bytes"]
    assert now == told["rest_bytes"] + sum(
        told[f"{name}_bytes"] for name in ("weights", "kv", "buffers", "caches")
    )
    process = status_bytes("VmRSS")
    assert process is not None
    assert abs(process - now) < 16 * MIB
    assert told["peak_bytes"] >= now - MIB
    assert told["rest_bytes"] > 0


def test_the_pool_counts_as_it_is_written_to(llm: LLM) -> None:
    before = resident(llm.parts)
    llm.generate(["one two three four five six seven " * 3], SamplingParams(max_tokens=8))
    after = resident(llm.parts)
    assert before is not None
    assert after is not None
    assert before.kv < after.kv <= llm.parts.pool.nbytes


def test_a_pool_can_be_resident_from_the_start(tiny_checkpoint: TinyCheckpoint) -> None:
    llm = tiny_llm(tiny_checkpoint("qwen3"), eager=True, kv_prefault=True)
    told = llm.inspect()
    assert told["resident"]["kv_bytes"] == told["memory"]["kv_bytes"]


def test_memory_that_was_read_alone_is_not_taken() -> None:
    made = untouched_zeros((16, MIB), torch.uint8, torch.device("cpu"))
    assert touched([made]) == 0
    assert not made.any()
    assert touched([made]) == 0
    made[3:5] = 1
    assert 2 * MIB <= touched([made]) <= 2 * MIB + 8192


def test_a_line_that_the_system_does_not_have_is_none() -> None:
    assert status_bytes("VmNothing") is None
