"""Log probabilities are the model's own distribution, sorted, finite."""

from __future__ import annotations

import json

import torch
from torch import Tensor

from firstlight.core.output import TokenLogprob
from firstlight.sampling.logprobs import logprob_columns, read_logprobs


def token_logprobs(logits: Tensor, chosen: list[int], wanted: list[int]) -> list[TokenLogprob]:
    """Both halves: what is found on the device, and what the host makes of it."""
    own, ids, values = logprob_columns(logits, torch.tensor(chosen), max(wanted))
    return list(read_logprobs(chosen, wanted, own.tolist(), ids.tolist(), values.tolist()))


def test_they_are_the_log_softmax_of_the_logits() -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(2)) * 5
    found = token_logprobs(logits, [4, 0, 49], [0, 5, 20])
    reference = logits.double().log_softmax(-1)
    for row, entry in zip(reference, found, strict=True):
        assert abs(entry.logprob - float(row[entry.token_id])) < 1e-4
        for token, logprob in entry.top:
            assert abs(logprob - float(row[token])) < 1e-4
    assert [len(entry.top) for entry in found] == [0, 5, 20]


def test_alternatives_are_the_likeliest_in_descending_order_ties_by_id() -> None:
    logits = torch.tensor([[1.0, 7.0, 1.0, 7.0, 1.0]])
    (entry,) = token_logprobs(logits, [0], [4])
    assert [token for token, _ in entry.top] == [1, 3, 0, 2]
    assert sorted((v for _, v in entry.top), reverse=True) == [v for _, v in entry.top]


def test_impossible_tokens_are_left_out_so_that_json_can_hold_the_rest() -> None:
    logits = torch.full((1, 10), -torch.inf)
    logits[0, [2, 6]] = torch.tensor([1.0, 2.0])
    (entry,) = token_logprobs(logits, [6], [5])
    assert [token for token, _ in entry.top] == [6, 2]
    json.dumps(entry.top, allow_nan=False)


def test_more_alternatives_than_tokens_give_all_tokens() -> None:
    (entry,) = token_logprobs(torch.zeros(1, 3), [1], [20])
    assert len(entry.top) == 3
