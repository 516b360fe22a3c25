"""Log probabilities of chosen tokens and of their rivals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from firstlight.core.output import TokenLogprob
from firstlight.sampling.filters import rank
from firstlight.transfer import on_device


def token_logprobs(
    logits: Tensor, chosen: Sequence[int], wanted: Sequence[int]
) -> list[TokenLogprob]:
    """Log-softmax of the raw logits at the chosen and at the likeliest tokens.

    Raw means before penalties, temperature and filters: it is the model's own distribution, which
    does not change with how a request samples from it.

    Args:
        logits: [B, V] float32.
        chosen: B token ids.
        wanted: alternatives per row, 0 for none.

    Returns:
        One per row; the alternatives likeliest first, ties by lowest id, tokens of probability zero
        left out.
    """
    logprobs = logits.log_softmax(-1)
    most = min(max(wanted, default=0), logits.shape[-1])
    values, ids = rank(logprobs, most)
    own = logprobs.gather(1, on_device(chosen, torch.int64, logits.device)[:, None])[:, 0]
    found = []
    rows = zip(own.tolist(), chosen, wanted, ids.tolist(), values.tolist(), strict=True)
    for logprob, token, n, top_ids, top_values in rows:
        pairs = zip(top_ids[:n], top_values[:n], strict=True)
        top = tuple((i, v) for i, v in pairs if v > -math.inf)
        found.append(TokenLogprob(token, logprob, top))
    return found
