"""The sampler: each request gets what it would get alone."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from firstlight.core.sampling_params import SamplingParams
from firstlight.sampling import Sampled, SamplingState
from firstlight.sampling.filters import top_k
from firstlight.sampling.sampler import Sampler


def _logits(rows: int, size: int = 64, seed: int = 0) -> Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 2


def _state(**params: object) -> SamplingState:
    return SamplingState(SamplingParams(**params))  # type: ignore[arg-type]


def sample(
    logits: Tensor, states: list[SamplingState], sampler: Sampler | None = None
) -> list[Sampled]:
    """The tokens, waited for."""
    return (sampler or Sampler()).launch(logits, states).wait()


def _ids(logits: Tensor, states: list[SamplingState]) -> list[int]:
    return [s.token_id for s in sample(logits, states)]


def _draws(state: SamplingState, logits: Tensor, n: int) -> list[int]:
    sampler = Sampler()
    return [sample(logits, [state], sampler)[0].token_id for _ in range(n)]


def test_greedy_takes_the_lowest_id_of_equal_logits() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0, 3.0], [1.0, 1.0, 1.0, 1.0]])
    assert _ids(logits, [_state(temperature=0), _state(temperature=0)]) == [1, 0]


def test_greedy_with_and_without_the_fast_path_agree() -> None:
    logits = _logits(8)
    fast = _ids(logits, [_state(temperature=0) for _ in range(8)])
    slow = _ids(logits, [_state(temperature=0, logprobs=0) for _ in range(8)])
    assert fast == slow == logits.argmax(-1).tolist()


def test_the_logits_are_not_changed() -> None:
    logits = _logits(2)
    before = logits.clone()
    states = [
        SamplingState(
            SamplingParams(
                seed=1, top_k=3, top_p=0.5, min_p=0.1, repetition_penalty=2.0, min_tokens=1
            ),
            prompt_ids=[1, 2, 3],
            eos_token_ids=(4,),
        )
        for _ in range(2)
    ]
    sample(logits, states)
    assert torch.equal(logits, before)


def test_frequencies_are_those_of_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0, 0.5]])
    n = 4000
    probs = (logits[0] / 0.7).softmax(-1)
    counts = torch.bincount(
        torch.tensor(_draws(_state(seed=11, temperature=0.7), logits, n)), minlength=5
    )
    # chi-square with 4 degrees of freedom: above 23.5 once in 10,000 correct samplers
    chi2 = float(((counts - n * probs) ** 2 / (n * probs)).sum())
    assert chi2 < 23.5


def test_filters_apply_in_the_order_of_transformers() -> None:
    """top-p counts within what top-k left: 0.4 of [0.4, 0.3] is over half, of all it is not."""
    logits = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    draws = set(_draws(_state(seed=3, top_k=2, top_p=0.55), logits, 200))
    assert draws == {0}
    draws = set(_draws(_state(seed=3, top_p=0.55), logits, 200))
    assert draws == {0, 1}


def test_a_seed_gives_the_same_tokens_whatever_the_neighbours_are() -> None:
    logits = _logits(5, seed=4)
    alone = _draws(_state(seed=42, top_p=0.9), logits[2:3], 20)
    mine = _state(seed=42, top_p=0.9)
    others = [_state(temperature=0), _state(seed=1), _state(top_k=5), _state(logprobs=2, seed=9)]
    sampler = Sampler()
    states = [*others[:2], mine, *others[2:]]
    assert [sample(logits, states, sampler)[2].token_id for _ in range(20)] == alone


@pytest.mark.parametrize("k", [1, 5, 64, 65, 1024, 1025, 2999])
def test_draws_among_few_candidates_are_those_from_all_columns(k: int) -> None:
    """With the same uniform number, the place in the distribution is the same."""
    logits = _logits(1, size=3000, seed=k)
    logits[0, ::7] = logits[0, 0]  # ties, over the edge of k
    limit = [k]
    (expected,) = _draws(_state(seed=k), top_k(logits, limit), 1)
    (drawn,) = _draws(_state(seed=k, top_k=k), logits, 1)
    assert drawn == expected


@pytest.mark.parametrize("uniform", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_no_impossible_token(
    monkeypatch: pytest.MonkeyPatch, uniform: float
) -> None:
    value = torch.tensor([uniform], dtype=torch.float64)
    monkeypatch.setattr(torch, "rand", lambda *_, **__: value)
    logits = _logits(64, size=300)
    logits[:, [0, -1]] = -torch.inf
    # Each row's probabilities add up to a little more or less than one.
    drawn = _ids(logits, [_state() for _ in logits])
    assert drawn == [1 if uniform == 0 else 298] * len(logits)


def test_different_seeds_differ() -> None:
    logits = torch.zeros(1, 1000)
    assert _draws(_state(seed=1), logits, 5) != _draws(_state(seed=2), logits, 5)


def test_requests_without_a_seed_draw_from_the_samplers_generator() -> None:
    logits = torch.zeros(1, 1000)
    first = sample(logits, [_state()], Sampler(torch.Generator().manual_seed(5)))
    again = sample(logits, [_state()], Sampler(torch.Generator().manual_seed(5)))
    assert first == again


@pytest.mark.parametrize("temperature", [1e-30, 1e-5, 100.0])
def test_extreme_temperatures_stay_finite(temperature: float) -> None:
    logits = _logits(1) * 1e4
    (sampled,) = sample(logits, [_state(temperature=temperature, seed=1)])
    assert sampled.error is None
    if temperature < 1:
        assert sampled.token_id == int(logits.argmax())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("params", [{"temperature": 0}, {"seed": 1}])
def test_bad_logits_are_the_error_of_their_request_alone(
    bad: float, params: dict[str, object]
) -> None:
    logits = _logits(3)
    expected = _ids(logits, [_state(**params) for _ in range(3)])
    logits[1, 7] = bad
    sampled = sample(logits, [_state(**params) for _ in range(3)])
    assert [s.error is None for s in sampled] == [True, False, True]
    assert [sampled[0].token_id, sampled[2].token_id] == [expected[0], expected[2]]
    assert str(bad) in str(sampled[1].error)


@pytest.mark.parametrize("params", [{"temperature": 0}, {"seed": 1}, {"seed": 1, "top_k": 5}])
def test_a_row_that_is_lost_has_an_id_that_can_be_looked_up(params: dict[str, object]) -> None:
    """The next step may be issued before anybody sees the error."""
    logits = torch.full((2, 300), math.nan)
    draws = Sampler().launch(logits, [_state(**params), _state(**params, logprobs=2)])
    assert ((draws.ids >= 0) & (draws.ids < 300)).all()
    assert all(sampled.error is not None for sampled in draws.wait())


def test_ids_on_the_device_are_those_that_arrive() -> None:
    states = [_state(temperature=0), _state(seed=1), _state(seed=2, top_k=3, logprobs=1)]
    draws = Sampler().launch(_logits(3, 300), states)
    assert draws.ids.tolist() == [sampled.token_id for sampled in draws.wait()]


def test_a_request_whose_every_token_is_suppressed_fails_alone() -> None:
    params = SamplingParams(temperature=0, min_tokens=1)
    doomed = SamplingState(params, eos_token_ids=(0, 1))
    sampled = sample(torch.zeros(2, 2), [doomed, _state(temperature=0)])
    assert sampled[0].error is not None
    assert sampled[1].token_id == 0


def test_the_end_token_waits_for_min_tokens() -> None:
    logits = torch.tensor([[0.0, 9.0, 1.0]])
    state = SamplingState(SamplingParams(temperature=0, min_tokens=2), eos_token_ids=(1,))
    for _ in range(3):
        state.output_ids.append(_ids(logits, [state])[0])
    assert state.output_ids == [2, 2, 1]


def test_penalties_see_what_the_engine_appended() -> None:
    logits = torch.tensor([[1.0, 0.9, 0.8]])
    state = _state(temperature=0, frequency_penalty=0.15)
    for _ in range(4):
        state.output_ids.append(_ids(logits, [state])[0])
    assert state.output_ids == [0, 1, 0, 2]


def test_logprobs_are_raw_whatever_the_request_does_to_the_logits() -> None:
    logits = _logits(2, seed=8)
    plain = _state(temperature=0, logprobs=3)
    bent = SamplingState(
        SamplingParams(temperature=0.3, seed=1, top_k=1, repetition_penalty=1.5, logprobs=3),
        prompt_ids=list(range(30)),
    )
    reference = logits.log_softmax(-1)
    for row, sampled in enumerate(sample(logits, [plain, bent])):
        assert sampled.logprob is not None
        assert sampled.logprob.token_id == sampled.token_id
        assert sampled.logprob.logprob == pytest.approx(float(reference[row, sampled.token_id]))
        top = torch.topk(logits[row], 3).indices.tolist()
        assert [token for token, _ in sampled.logprob.top] == top


def test_only_requests_that_ask_get_logprobs() -> None:
    sampled = sample(_logits(2), [_state(logprobs=0, seed=1), _state(seed=2)])
    assert sampled[0].logprob is not None
    assert sampled[0].logprob.top == ()
    assert sampled[1].logprob is None


@settings(max_examples=100, deadline=None)
@given(
    row=st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=30),
    k=st.integers(0, 31),
    top_p=st.floats(0.01, 1.0),
    min_p=st.floats(0.0, 1.0),
    temperature=st.floats(0.01, 100.0),
    seed=st.integers(),
)
def test_what_is_drawn_survives_every_filter(
    row: list[float], k: int, top_p: float, min_p: float, temperature: float, seed: int
) -> None:
    logits = torch.tensor([row])
    state = _state(top_k=k, top_p=top_p, min_p=min_p, temperature=temperature, seed=seed)
    (sampled,) = sample(logits, [state])
    better = int((logits[0] > logits[0, sampled.token_id]).sum())
    assert better < (k or len(row))
    ratio = math.exp((float(logits[0, sampled.token_id]) - max(row)) / temperature)
    assert ratio >= min_p * (1 - 1e-4)
