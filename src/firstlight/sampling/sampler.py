"""Chooses the next token of each request of a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from firstlight.core.output import TokenLogprob
from firstlight.errors import LogitsError, RequestError
from firstlight.sampling.filters import candidates, min_p, top_k, top_p
from firstlight.sampling.logprobs import token_logprobs
from firstlight.sampling.penalties import (
    bias_,
    occurrence_penalties_,
    repetition_penalty_,
    suppress_,
)
from firstlight.sampling.state import SamplingState
from firstlight.transfer import on_device, to_device

_WIDTHS = (64, 1024)  # columns that a request with a smaller top_k needs


@dataclass(frozen=True, slots=True)
class Sampled:
    """A chosen token, or why there is none.

    Attributes:
        token_id: -1 with an error.
        logprob: under the model's raw distribution, with the rivals asked for; None unless asked.
        error: the request's own; no other request of the batch is touched.
    """

    token_id: int
    logprob: TokenLogprob | None = None
    error: RequestError | None = None


class Sampler:
    """Samples a batch; requests do not influence each other.

    Args:
        generator: source of draws for requests without a seed; by default one seeded by the system.
    """

    def __init__(self, generator: torch.Generator | None = None) -> None:
        if generator is None:
            generator = torch.Generator()
            generator.seed()
        self._generator = generator

    def sample(self, logits: Tensor, states: Sequence[SamplingState]) -> list[Sampled]:
        """The next token of each request.

        Args:
            logits: [B, V] float32, not changed.
            states: B requests.

        Returns:
            Per request the token, or an error that concerns this request alone: its logits have no
            finite maximum, or the form of its answer cannot be kept.
        """
        if all(_plain_greedy(state) for state in states):
            return _greedy(logits)
        adjusted, lost = _adjust(logits, states)
        chosen = _greedy(adjusted)
        for i, error in lost.items():
            chosen[i] = Sampled(-1, error=error)
        for width, rows in _groups(states, chosen, logits.shape[-1]).items():
            picked = adjusted if len(rows) == len(states) else _take_rows(adjusted, rows)
            tokens = self._draw(picked, [states[i] for i in rows], width)
            for i, token in zip(rows, tokens, strict=True):
                chosen[i] = Sampled(token)
        _report_logprobs(logits, states, chosen)
        return chosen

    def _draw(self, logits: Tensor, states: Sequence[SamplingState], width: int) -> list[int]:
        """Draw from each row [n, V] by inverting its cumulative distribution.

        One uniform number per row, from the request's own generator, decides; so the draw depends
        on nothing else in the batch.

        Args:
            width: likeliest tokens that can be drawn at all.
        """
        ids = None
        if width < logits.shape[-1]:
            logits, ids = candidates(logits, width)
        cumulative = _filter(logits, states).softmax(-1).cumsum(-1, dtype=torch.float64)
        uniform = torch.cat(
            [
                torch.rand(1, dtype=torch.float64, generator=s.generator or self._generator)
                for s in states
            ]
        )
        # Below the total even at the largest uniform number, 1 - 2**-53, with rounding to nearest.
        target = to_device(uniform, cumulative.device)[:, None] * cumulative[:, -1:]
        # right=True finds the first place that passes the target, whose probability is not zero.
        places = torch.searchsorted(cumulative, target, right=True)
        tokens = places if ids is None else ids.gather(-1, places)
        return [int(token) for token in tokens[:, 0].tolist()]


def _take_rows(logits: Tensor, rows: Sequence[int]) -> Tensor:
    return logits.index_select(0, on_device(rows, torch.int64, logits.device))


def _groups(
    states: Sequence[SamplingState], chosen: Sequence[Sampled], size: int
) -> dict[int, list[int]]:
    """Rows to draw from, by the number of columns they are worked out in.

    The number is one of few and depends on the request alone: sums over other columns would be
    rounded differently, and a draw could change with its neighbours.
    """
    groups: dict[int, list[int]] = {}
    for i, state in enumerate(states):
        if not state.params.greedy and chosen[i].error is None:
            k = state.params.top_k
            width = next((w for w in _WIDTHS if 0 < k <= w < size), size)
            groups.setdefault(width, []).append(i)
    return groups


def _plain_greedy(state: SamplingState) -> bool:
    params = state.params
    return (
        params.greedy
        and state.grammar is None
        and params.logprobs is None
        and params.repetition_penalty == 1
        and params.presence_penalty == 0
        and params.frequency_penalty == 0
        and not params.logit_bias
        and len(state.output_ids) >= params.min_tokens
    )


def _greedy(logits: Tensor) -> list[Sampled]:
    """The lowest id of each row's maximum, in one pass that also finds NaN."""
    values, ids = logits.max(dim=-1)  # a NaN wins; of equal values the first does
    return [
        Sampled(int(token)) if math.isfinite(value) else Sampled(-1, error=_not_finite(value))
        for value, token in _to_host(values, ids)
    ]


def _to_host(values: Tensor, ids: Tensor) -> list[tuple[float, int]]:
    """Pairs of both; from a GPU in one copy, since each of two would be waited for."""
    if not values.is_cuda:
        return list(zip(values.tolist(), ids.tolist(), strict=True))
    # A float64 holds a float32 and any token id exactly.
    pairs = torch.stack([values.double(), ids.double()], dim=1).tolist()
    return [(value, int(token)) for value, token in pairs]


def _not_finite(value: float) -> LogitsError:
    if value == -math.inf:
        return LogitsError("no token is possible: every logit is minus infinity")
    return LogitsError(f"the model's logits for this request hold {value}")


def _adjust(
    logits: Tensor, states: Sequence[SamplingState]
) -> tuple[Tensor, dict[int, RequestError]]:
    """A copy of the logits with forms kept, penalties, biases, and suppressed end tokens.

    Also the rows whose form cannot be kept, and why.
    """
    adjusted = logits.clone()
    lost: dict[int, RequestError] = {}
    for i, (row, state) in enumerate(zip(adjusted, states, strict=True)):
        params = state.params
        if state.grammar is not None:
            try:
                state.grammar.restrict_(row, state.output_ids, params.stop_token_ids)
            except RequestError as error:
                lost[i] = error
                continue
        if params.repetition_penalty != 1:
            repetition_penalty_(row, state.seen_ids(), params.repetition_penalty)
        if params.presence_penalty or params.frequency_penalty:
            occurrence_penalties_(
                row, state.output_counts(), params.presence_penalty, params.frequency_penalty
            )
        if biases := params.biases:
            bias_(row, biases)
        if suppressed := state.suppressed_ids():
            suppress_(row, suppressed)
    return adjusted, lost


def _filter(logits: Tensor, states: Sequence[SamplingState]) -> Tensor:
    """Temperature, top-k, top-p and min-p, each only if some row asks for it."""
    params = [s.params for s in states]

    def column(values: Sequence[float]) -> Tensor:
        return on_device(values, torch.float32, logits.device)

    # Shifted by the maximum first, a tiny temperature cannot overflow.
    shifted = logits - logits.amax(-1, keepdim=True)
    tiny = torch.finfo(torch.float32).tiny
    logits = shifted / column([max(p.temperature, tiny) for p in params])[:, None]
    if any(p.top_k for p in params):
        size = logits.shape[-1]
        logits = top_k(logits, [min(p.top_k, size) for p in params])
    if any(p.top_p < 1 for p in params):
        logits = top_p(logits, [p.top_p for p in params])
    if any(p.min_p for p in params):
        logits = min_p(logits, column([p.min_p for p in params]))
    return logits


def _report_logprobs(
    logits: Tensor, states: Sequence[SamplingState], chosen: list[Sampled]
) -> None:
    """Replace the tokens of requests that ask for log probabilities by ones that carry them."""
    asked = [
        (i, outcome.token_id, state.params.logprobs)
        for i, (outcome, state) in enumerate(zip(chosen, states, strict=True))
        if outcome.error is None and state.params.logprobs is not None
    ]
    if not asked:
        return
    rows, tokens, wanted = zip(*asked, strict=True)
    found = token_logprobs(_take_rows(logits, rows), tokens, wanted)
    for i, logprob in zip(rows, found, strict=True):
        chosen[i] = Sampled(logprob.token_id, logprob)
