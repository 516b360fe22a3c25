"""Log probabilities of chosen tokens and of their rivals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import Tensor

from firstlight.core.output import TokenLogprob
from firstlight.sampling.filters import rank


def logprob_columns(logits: Tensor, chosen: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Log-softmax of the raw logits at the chosen and at the likeliest tokens, on their device.

    Raw means before penalties, temperature and filters: it is the model's own distribution, which
    does not change with how a request samples from it.

    Args:
        logits: [B, V] float32.
        chosen: [B] int64 token ids.
        most: alternatives of the row that wants most of them.

    Returns:
        [B] of the chosen, ids [B, n] of the likeliest, and [B, n] of those; n is ``most`` or V.
        Likeliest first, ties by lowest id.
    """
    logprobs = logits.log_softmax(-1)
    values, ids = rank(logprobs, min(most, logits.shape[-1]))
    return logprobs.gather(1, chosen[:, None])[:, 0], ids, values


def read_logprobs(
    chosen: Sequence[int],
    wanted: Sequence[int],
    own: Sequence[float],
    ids: Sequence[Sequence[int]],
    values: Sequence[Sequence[float]],
) -> Iterator[TokenLogprob]:
    """What :func:`logprob_columns` found, row by row; tokens of probability zero are left out.

    Args:
        chosen: B token ids.
        wanted: alternatives per row, 0 for none.
        own, ids, values: as found.
    """
    for token, n, logprob, top_ids, top_values in zip(
        chosen, wanted, own, ids, values, strict=True
    ):
        pairs = zip(top_ids[:n], top_values[:n], strict=True)
        yield TokenLogprob(token, logprob, tuple((i, v) for i, v in pairs if v > -math.inf))
