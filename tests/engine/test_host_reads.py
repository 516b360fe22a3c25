"""Where a step would wait for a GPU: at named places, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from firstlight import LLM, SamplingParams
from firstlight.engine.engine import Engine
from firstlight.engine.step import Step, StepResult
from firstlight.transfer import Arriving
from tests.conftest import TinyCheckpoint
from tests.engine.engines import Part, tiny_llm, user
from tests.host_reads import HostReads, Read
from tests.pictures import picture

OWN = ("attention/cpu.py", "attention/chunk.py")
"""The CPU's attention kernel, in whose place another one runs on a GPU."""

ARRIVAL = ("transfer.py", "wait")
"""Where the host waits for a step's tokens, with all that is known of them."""
CPU_ONLY = {
    ("sampling/filters.py", "top_k"),  # whether tokens tie at the edge; a GPU treats them anyway
    ("sampling/filters.py", "top_p"),  # which rows need a whole sort; a GPU sorts all
    ("sampling/filters.py", "_nucleus_in_head"),
}

PARAMS = {
    "greedy": SamplingParams(temperature=0),
    "penalties": SamplingParams(
        temperature=0, repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.5,
        min_tokens=4, logit_bias={5: 1.0},
    ),
    "drawn": SamplingParams(temperature=1, seed=1),
    "filtered": SamplingParams(temperature=1, seed=1, top_k=20, top_p=0.9, min_p=0.01),
    "log probabilities": SamplingParams(temperature=0, logprobs=3),
}  # fmt: skip
RANKED = ("filtered", "log probabilities")
FAMILIES = ["llama", "qwen3_vl", "gemma3_vl"]


@pytest.fixture(scope="module", params=FAMILIES)
def llm(request: pytest.FixtureRequest, tiny_checkpoint: TinyCheckpoint) -> LLM:
    return tiny_llm(tiny_checkpoint(request.param), native="off")


def parts(llm: LLM) -> list[Part]:
    text = "Which colour is it, and why?"
    takes_pictures = llm.parts.model.adapter.media_token_id is not None
    return [picture(48, 32, seed=1), text] if takes_pictures else [text]


@pytest.fixture(params=[False, True], ids=["in step", "one late"])
def engine(request: pytest.FixtureRequest, llm: LLM) -> Iterator[Engine]:
    """Its tokens taken at once, or one step late."""
    engine = llm.parts.engine
    engine._overlap = request.param
    yield engine
    engine._overlap = False


def audited(function: Callable[..., Any], found: list[Read]) -> Callable[..., Any]:
    """``function``, whose reads of the device are added to ``found``."""

    def call(*args: Any) -> Any:
        with HostReads(ignoring=OWN) as reads:
            result = function(*args)
        found.extend(reads.reads)
        return result

    return call


@pytest.mark.parametrize("case", PARAMS)
def test_a_step_reads_the_device_only_where_its_tokens_arrive(
    llm: LLM, engine: Engine, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """Prefill and decode, with a picture where the model takes one; the encoder has its own."""
    issuing: list[Read] = []
    waiting: list[Read] = []
    monkeypatch.setattr(Step, "run", audited(Step.run, issuing))
    monkeypatch.setattr(StepResult, "wait", audited(StepResult.wait, waiting))
    params = replace(PARAMS[case], max_tokens=5, ignore_eos=True)
    answer = llm.chat(user(*parts(llm)), params)
    assert len(answer.token_ids) == 5
    assert {(r.file, r.function) for r in issuing} <= (CPU_ONLY if case in RANKED else set())
    assert {(r.file, r.function) for r in waiting} == {ARRIVAL}


def test_of_the_whole_loop_nothing_else_reads(
    llm: LLM, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning, pages, taking tokens, text: of the whole loop only the arrival reads."""
    found: list[Read] = []
    arrivals = 0
    plain = Arriving.wait

    def wait(self: Arriving) -> Any:
        nonlocal arrivals
        arrivals += 1
        return plain(self)

    monkeypatch.setattr(Arriving, "wait", wait)
    request = llm.parts.admission.chat(user("Why?"), replace(PARAMS["greedy"], max_tokens=5))
    engine.add(request)
    step = audited(engine.step, found)
    steps = 0
    while request.finish is None:
        step()
        steps += 1
    assert {(r.file, r.function) for r in found} == {ARRIVAL}
    assert arrivals == len(request.timings.steps)
    assert arrivals <= steps <= arrivals + 1
