"""Tokens that were chosen: their ids on the device at once, all about them on the host later."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from firstlight.core.output import TokenLogprob
from firstlight.errors import LogitsError, RequestError
from firstlight.sampling.logprobs import read_logprobs
from firstlight.transfer import Arriving, to_host


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


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """The next token of each request of a batch.

    Attributes:
        ids: int64 ``[B]`` on the logits' device, for the step that goes on from there. Where there
            is an error it is some id of the vocabulary.
        lost: rows whose token counts for nothing, and why.
        wanted: alternatives by row, of the rows that asked for log probabilities.
    """

    ids: Tensor
    lost: Mapping[int, RequestError]
    wanted: Mapping[int, int]
    _arriving: Arriving

    @classmethod
    def of(
        cls,
        ids: Tensor,
        maxima: Tensor,
        lost: Mapping[int, RequestError] | None = None,
        wanted: Mapping[int, int] | None = None,
        logprobs: tuple[Tensor, ...] = (),
    ) -> Draws:
        """Start the way to the host.

        Args:
            ids: int64 ``[B]``.
            maxima: float32 ``[B]``, the largest of each row's logits; NaN if one of them is.
            logprobs: of the rows in ``wanted``, in their order, see
                :func:`~firstlight.sampling.logprobs.logprob_columns`.
        """
        arriving = to_host((ids, maxima, *logprobs), ids.device)
        return cls(ids, lost or {}, wanted or {}, arriving)

    @classmethod
    def none(cls, device: torch.device) -> Draws:
        """Of a step that chooses no token; waiting for it waits for the step."""
        return cls(torch.empty(0, dtype=torch.int64), {}, {}, to_host((), device))

    def wait(self) -> list[Sampled]:
        """Per request the token, or an error that concerns this request alone: its logits have no
        finite maximum, or the form of its answer cannot be kept.
        """
        arrived = self._arriving.wait()
        if not arrived:
            return []
        ids, maxima, *columns = arrived
        logprobs = self._logprobs(ids, columns) if self.wanted else {}
        return [
            self._sampled(row, token, value, logprobs.get(row))
            for row, (token, value) in enumerate(zip(ids, maxima, strict=True))
        ]

    def _sampled(
        self, row: int, token: int, maximum: float, logprob: TokenLogprob | None
    ) -> Sampled:
        error = self.lost.get(row)
        if error is None and not math.isfinite(maximum):
            error = _not_finite(maximum)
        return Sampled(token, logprob) if error is None else Sampled(-1, error=error)

    def _logprobs(self, ids: list[int], columns: list[Any]) -> dict[int, TokenLogprob]:
        own, top_ids, top_values = columns
        rows = list(self.wanted)
        found = read_logprobs(
            [ids[row] for row in rows], list(self.wanted.values()), own, top_ids, top_values
        )
        return dict(zip(rows, found, strict=True))


def _not_finite(value: float) -> LogitsError:
    if value == -math.inf:
        return LogitsError("no token is possible: every logit is minus infinity")
    return LogitsError(f"the model's logits for this request hold {value}")
