"""Whole engines on a GPU: the answers of a CPU, and nothing waited for but the tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch

from firstlight import SamplingParams
from tests.conftest import TinyCheckpoint
from tests.engine.engines import GREEDY, Part, assert_same_ids, reference, tiny_llm, user
from tests.pictures import picture

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
PARTS: dict[str, list[Part]] = {
    "llama": ["What is it?"],
    "qwen3_vl": [picture(48, 32, seed=1), "What is it?"],
    "gemma3_vl": [picture(48, 32, seed=1), "What is it?"],
}


@contextmanager
def waiting(mode: str) -> Iterator[None]:
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def within(mode: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, in which what waits for the device is as ``mode`` says."""

    def call(*args: Any, **options: Any) -> Any:
        with waiting(mode):
            return function(*args, **options)

    return call


@pytest.fixture(scope="module", params=["eager", "cuda", "cuda-whole"])
def settings(request: pytest.FixtureRequest) -> dict[str, object]:
    return {"eager": True} if request.param == "eager" else {"backend": request.param}


@pytest.mark.parametrize("family", PARTS)
def test_answers_are_those_of_transformers_on_a_cpu(
    tiny_checkpoint: TinyCheckpoint, family: str, settings: dict[str, object]
) -> None:
    path = tiny_checkpoint(family)
    with tiny_llm(path, device="cuda", **settings) as llm:
        answer = llm.chat(user(*PARTS[family]), GREEDY)
        assert_same_ids(answer, reference(llm, path, PARTS[family]))


@pytest.mark.parametrize("overlap", ["on", "off"])
@pytest.mark.parametrize("family", PARTS)
def test_issuing_a_step_waits_for_nothing(
    tiny_checkpoint: TinyCheckpoint,
    family: str,
    overlap: str,
    settings: dict[str, object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every wait is an error, in prefills and decodes; tokens arrive by an event."""
    path = tiny_checkpoint(family)
    with tiny_llm(path, device="cuda", overlap_schedule=overlap, **settings) as llm:
        step = llm.parts.engine._step
        llm.chat(user(*PARTS[family]), GREEDY)  # libraries take their workspaces
        monkeypatch.setattr(step, "run", within("error", step.run))
        answers = llm.chat([user(*PARTS[family]), user("And now?")], GREEDY)
    assert [len(answer.token_ids) for answer in answers] == [32, 32]


@pytest.mark.parametrize("params", [GREEDY, replace(GREEDY, temperature=1, seed=3, logprobs=2)])
def test_tokens_taken_one_step_late_are_those_taken_in_step(
    tiny_checkpoint: TinyCheckpoint, settings: dict[str, object], params: SamplingParams
) -> None:
    path = tiny_checkpoint("llama")
    asked = [user("What is it?"), user("And now?"), user("Tell me more of it.")]
    answers = []
    for overlap in ("off", "on"):
        with tiny_llm(path, device="cuda", overlap_schedule=overlap, **settings) as llm:
            answers.append([answer.token_ids for answer in llm.chat(asked, params)])
    assert answers[0] == answers[1]
