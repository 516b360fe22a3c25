"""The declared width is the width of everything: slots, registry, dummies, merge, graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstlight import LLM, SamplingParams
from firstlight.core.reason import Mode, Phase
from firstlight.errors import ContractError, ProbeError
from tests.engine.engines import tiny_llm
from tests.pictures import picture
from tests.toy import HIDDEN, IMAGE_TOKEN, MisspeltToy, ToyForCausalLM, build_toy, toy_registry

FEW = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def toy_llm(folder: Path, row_width: int, declared_width: int | None, **settings: object) -> LLM:
    path = build_toy(folder, row_width=row_width, declared_width=declared_width)
    return tiny_llm(path, adapters=toy_registry(), **settings)


@pytest.mark.parametrize("row_width", [2 * HIDDEN, 3 * HIDDEN // 2])
def test_a_wide_model_runs_captured_and_equals_eager(row_width: int, tmp_path: Path) -> None:
    captured = toy_llm(tmp_path, row_width, row_width)
    eager = tiny_llm(tmp_path, adapters=toy_registry(), eager=True)
    prompt, images = f"What is {IMAGE_TOKEN} here?", [picture(32, 32, seed=3)]
    answer = captured.generate(prompt, FEW, images=images)
    assert answer.token_ids == eager.generate(prompt, FEW, images=images).token_ids
    assert {s.decision.mode for s in answer.timings.steps} == {Mode.GRAPH}


@pytest.mark.parametrize("row_width", [2 * HIDDEN, 3 * HIDDEN // 2])
def test_one_declaration_moves_every_consumer(row_width: int, tmp_path: Path) -> None:
    llm = toy_llm(tmp_path, row_width, row_width)
    assert llm.inspect()["input_embeds_hidden_size"] == row_width
    for runner in llm.parts.runners.values():
        assert runner.registry.buffer("input_embeds").shape[1] == row_width
        assert runner.embeds(1).shape[1] == row_width
    prefill = llm.parts.runners[Phase.PREFILL]
    buffer = prefill.registry.buffer("input_embeds")
    for rows in (16, 256):
        assert prefill.embeds(rows).data_ptr() == buffer.data_ptr()
        assert "slot input_embeds" in str(
            getattr(prefill.graphs[rows], "owner_of")(buffer.data_ptr())  # noqa: B009
        )


def test_the_columns_beyond_hidden_size_matter(tmp_path: Path) -> None:
    """A buffer of ``hidden_size`` columns would lose them; here they change the answer."""
    llm = toy_llm(tmp_path, 2 * HIDDEN, 2 * HIDDEN)
    prefill = llm.parts.runners[Phase.PREFILL]
    llm.generate("What is here?", FEW)
    rows = prefill.embeds(16)
    assert rows[:1, HIDDEN:].abs().max() > 0


def test_a_wrong_declaration_stops_the_load_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=rf"{2 * HIDDEN} columns.*{3 * HIDDEN}"):
        toy_llm(tmp_path, 2 * HIDDEN, 3 * HIDDEN)


def test_a_missing_declaration_stops_the_load_and_says_what_to_declare(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match=f"input_embeds_hidden_size = {2 * HIDDEN}"):
        toy_llm(tmp_path, 2 * HIDDEN, None)


def test_a_misspelt_declaration_stops_the_load_with_the_suggestion(tmp_path: Path) -> None:
    path = build_toy(tmp_path, model_class=MisspeltToy)
    with pytest.raises(ContractError, match="did you mean 'input_embeds_hidden_size'"):
        tiny_llm(path, adapters=toy_registry(MisspeltToy))


def test_the_picture_reaches_a_wide_model(tmp_path: Path) -> None:
    llm = toy_llm(tmp_path, 2 * HIDDEN, 2 * HIDDEN)
    assert ToyForCausalLM.__name__ == llm.inspect()["architecture"]
    prompt = f"What is {IMAGE_TOKEN} here?"
    answers = {
        llm.generate(prompt, FEW, images=[picture(32, 32, seed=seed)]).token_ids
        for seed in range(6)
    }
    assert len(answers) > 1
