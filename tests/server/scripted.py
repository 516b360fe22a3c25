"""Answers whose tokens a test decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
        for row, state in enumerate(states):
            draws.ids[row] = _forced(state, int(draws.ids[row]), answers)
        return draws

    monkeypatch.setattr(Sampler, "launch", launch)


def _forced(state: SamplingState, chosen: int, answers: Mapping[int, Sequence[int]]) -> int:
    seed = state.params.seed
    if seed is None or seed not in answers:
        return chosen
    tokens = answers[seed]
    return tokens[min(state.drawn, len(tokens) - 1)]
