"""Whole steps on a device that is not the CPU: nothing mixes devices, and nothing is read.

The device is torch's ``meta``: it computes nothing and holds no values. Tensors of a CPU do not mix
with its own, as with a GPU's, and every look at a value is an error.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from firstlight import SamplingParams
from firstlight.attention.gathered import attention_gathered_
from firstlight.config import EngineConfig
from firstlight.core.reason import Phase
from firstlight.engine.build import Parts, build, load
from firstlight.engine.gpu import Gpu
from tests.conftest import TinyCheckpoint
from tests.engine.test_gpu import SETTINGS
from tests.graphs.fake_cuda import FakeApi


class Elsewhere(FakeApi):
    """A GPU whose memory is the device ``meta``."""

    device = torch.device("meta")


@pytest.fixture(scope="module")
def attention() -> Iterator[None]:
    """Plain operations attend there, as on a GPU without a library's kernel."""
    library: Any = torch.library.Library("firstlight", "IMPL")  # type: ignore[no-untyped-call]
    library.impl("attention", attention_gathered_, "Meta")
    yield
    library._destroy()


def engine(folder: object) -> Parts:
    """An eager engine there."""
    eager = {"prefill_buckets": None, "decode_buckets": None, "eager": True, "kv_pages": 64}
    off = {"debug": False, "prefix_cache": False}
    cpu = EngineConfig.from_options({"model": folder, **SETTINGS, **eager, **off})
    model = load(cpu)
    model.adapter.model.to("meta")
    config = replace(cpu, device="cuda")
    return build(config, model, clock=time.perf_counter, gpu=Gpu(Elsewhere(), config))


PARAMS = {
    "greedy": SamplingParams(temperature=0, max_tokens=8, ignore_eos=True),
    "drawn": SamplingParams(temperature=0.8, top_k=9, top_p=0.9, min_p=0.01, max_tokens=8),
    "with log probabilities": SamplingParams(temperature=0, logprobs=3, max_tokens=8),
    "penalised": SamplingParams(presence_penalty=1.0, logit_bias={3: 2.0}, max_tokens=8),
}


@pytest.mark.usefixtures("attention")
@pytest.mark.parametrize("family", ["llama", "qwen3_vl", "gemma3"])
def test_a_prefill_and_a_decode_step_are_issued_without_a_look_or_a_mix(
    family: str, tiny_checkpoint: TinyCheckpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = engine(tiny_checkpoint(family))
    loop = parts.engine
    monkeypatch.setattr(loop, "_run_apart", told)
    for params in PARAMS.values():
        asked = [parts.admission.text(text, (), params) for text in ("one two", "three four five")]
        for sequence in asked:
            loop.add(sequence)
        phases = []
        for _ in range(2):
            plan = parts.scheduler.next_batch()
            assert plan is not None
            phases.append(plan.phase)
            loop._issue(plan)
        assert phases == [Phase.PREFILL, Phase.DECODE]
        loop._flights.clear()
        for sequence in asked:
            loop.abort(sequence)


def told(plan: object, error: Exception) -> None:
    """What a step fails by, and not what it is made of."""
    raise error
