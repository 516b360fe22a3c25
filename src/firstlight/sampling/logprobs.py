"""Log probabilities of chosen tokens and of their rivals."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from firstlight.sampling.filters import rank


def token_logprobs(
    logits: Tensor, chosen: Sequence[int], wanted: Sequence[int]
) -> list[tuple[float, tuple[tuple[int, float], ...]]]:
    """Log-softmax of the raw logits at the chosen and at the likeliest tokens.

    Raw means before penalties, temperature and filters: it is the model's own distribution, which
    does not change with how a request samples from it.

    Args:
        logits: [B, V] float32.
        chosen: B token ids.
        wanted: alternatives per row, 0 for none.

    Returns:
        Per row the chosen token's logprob and ``(token id, logprob)`` of the alternatives,
        likeliest first, ties by lowest id; tokens of probability zero are left out.
    """
    logprobs = logits.log_softmax(-1)
    most = min(max(wanted, default=0), logits.shape[-1])
    values, ids = rank(logprobs, most)
    rows = zip(logprobs, chosen, wanted, ids.tolist(), values.tolist(), strict=True)
    return [
        (
            float(row[token]),
            tuple(
                (i, v) for i, v in zip(top[:n], top_values[:n], strict=True) if v > -float("inf")
            ),
        )
        for row, token, n, top, top_values in rows
    ]
