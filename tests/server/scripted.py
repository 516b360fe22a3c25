"""Answers whose tokens a test decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from torch import Tensor

from firstlight.core.output import TokenLogprob
from firstlight.engine.build import Parts
from firstlight.sampling import Sampled, Sampler
from firstlight.sampling.state import SamplingState


def characters(parts: Parts, text: str) -> list[int]:
    """Token ids of a text, one for each character, or several for one that has no token."""
    tokenizer = parts.model.tokenizer
    return [i for c in text for i in tokenizer(c, add_special_tokens=False)["input_ids"]]


def script(monkeypatch: pytest.MonkeyPatch, answers: Mapping[int, Sequence[int]]) -> None:
    """From now on a request with ``seed`` s is answered with the tokens ``answers[s]``, and then
    with the last of them over and over."""
    plain = Sampler.sample

    def sample(self: Sampler, logits: Tensor, states: Sequence[SamplingState]) -> list[Sampled]:
        chosen = plain(self, logits, states)
        return [_forced(s, c, answers) for s, c in zip(states, chosen, strict=True)]

    monkeypatch.setattr(Sampler, "sample", sample)


def _forced(state: SamplingState, chosen: Sampled, answers: Mapping[int, Any]) -> Sampled:
    seed = state.params.seed
    if seed is None or seed not in answers:
        return chosen
    tokens = answers[seed]
    token = tokens[min(len(state.output_ids), len(tokens) - 1)]
    asked = state.params.logprobs is not None
    return Sampled(token, TokenLogprob(token, -0.5) if asked else None)
