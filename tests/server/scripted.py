"""Answers whose tokens a test decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from torch import Tensor

from firstlight.engine.build import Parts
from firstlight.sampling import Draws, Sampler
from firstlight.sampling.state import SamplingState


def characters(parts: Parts, text: str) -> list[int]:
    """Token ids of a text, one for each character, or several for one that has no token."""
    tokenizer = parts.model.tokenizer
    return [i for c in text for i in tokenizer(c, add_special_tokens=False)["input_ids"]]


def script(monkeypatch: pytest.MonkeyPatch, answers: Mapping[int, Sequence[int]]) -> None:
    """From now on a request with ``seed`` s is answered with the tokens ``answers[s]``, and then
    with the last of them over and over."""
    plain = Sampler.launch

    def launch(self: Sampler, logits: Tensor, states: Sequence[SamplingState]) -> Draws:
        draws = plain(self, logits, states)
        forced = {i for i, state in enumerate(states) if state.params.seed in answers}
        for row in forced:
            draws.ids[row] = _forced(states[row], answers)
        lost = {row: error for row, error in draws.lost.items() if row not in forced}
        return replace(draws, lost=lost)

    monkeypatch.setattr(Sampler, "launch", launch)


def _forced(state: SamplingState, answers: Mapping[int, Sequence[int]]) -> int:
    assert state.params.seed is not None
    tokens = answers[state.params.seed]
    return tokens[min(state.drawn, len(tokens) - 1)]
