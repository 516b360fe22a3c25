"""Chooses the next token of each request of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from firstlight.errors import RequestError
from firstlight.sampling.draws import Draws
from firstlight.sampling.filters import candidates, min_p, top_k, top_p
from firstlight.sampling.logprobs import logprob_columns
from firstlight.sampling.penalties import (
    bias_,
    occurrence_penalties_,
    repetition_penalty_,
    suppress_,
)
from firstlight.sampling.state import SamplingState
from firstlight.transfer import on_device, to_device

_WIDTHS = (64, 1024)  # columns that a request with a smaller top_k needs


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

    def launch(self, logits: Tensor, states: Sequence[SamplingState]) -> Draws:
        """Choose the next token of each request, without waiting for the device.

        Args:
            logits: [B, V] float32, not changed.
            states: B requests.
        """
        if all(_plain_greedy(state) for state in states):
            maxima, ids = _largest(logits)
            return Draws.of(ids, maxima)
        adjusted, lost = _adjust(logits, states)
        maxima, ids = _largest(adjusted)
        for width, rows in _groups(states, lost, logits.shape[-1]).items():
            tokens = self._draw(_take_rows(adjusted, rows), [states[i] for i in rows], width)
            if len(rows) == len(states):
                ids = tokens
            else:
                ids.index_copy_(0, on_device(rows, torch.int64, ids.device), tokens)
        wanted = {
            i: state.params.logprobs
            for i, state in enumerate(states)
            if state.params.logprobs is not None
        }
        if not wanted:
            return Draws.of(ids, maxima, lost)
        rows = list(wanted)
        columns = logprob_columns(
            _take_rows(logits, rows), _take_rows(ids, rows), max(wanted.values())
        )
        return Draws.of(ids, maxima, lost, wanted, columns)

    def _draw(self, logits: Tensor, states: Sequence[SamplingState], width: int) -> Tensor:
        """Draw from each row [n, V] by inverting its cumulative distribution: int64 [n].

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
        # In a row that holds NaN nothing passes; its token counts for nothing, but is looked up.
        places = places.clamp_(max=cumulative.shape[-1] - 1)
        tokens = places if ids is None else ids.gather(-1, places)
        return tokens[:, 0]


def _take_rows(values: Tensor, rows: Sequence[int]) -> Tensor:
    """The rows, ascending, of ``values``; itself if they are all."""
    if len(rows) == values.shape[0]:
        return values
    return values.index_select(0, on_device(rows, torch.int64, values.device))


def _groups(
    states: Sequence[SamplingState], lost: Mapping[int, RequestError], size: int
) -> dict[int, list[int]]:
    """Rows to draw from, by the number of columns they are worked out in.

    The number is one of few and depends on the request alone: sums over other columns would be
    rounded differently, and a draw could change with its neighbours.
    """
    groups: dict[int, list[int]] = {}
    for i, state in enumerate(states):
        if not state.params.greedy and i not in lost:
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
        and state.drawn >= params.min_tokens
    )


def _largest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Each row's maximum and its lowest id, in one pass that also finds NaN."""
    return logits.max(dim=-1)  # a NaN wins; of equal values the first does


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
