"""One request on its way through the engine."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from firstlight.core.output import FinishReason, TokenLogprob
from firstlight.core.sampling_params import SamplingParams
from firstlight.core.timing import Timings
from firstlight.engine.detokenizer import Detokenizer
from firstlight.engine.media_items import MediaItem
from firstlight.engine.prompt import Prompt
from firstlight.memory.holding import Holding
from firstlight.memory.prefix_key import PrefixKey
from firstlight.models.adapter import Positions
from firstlight.sampling import SamplingState


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """A token that may not have arrived on the host yet.

    Attributes:
        ids: int64 ``[B]`` of the step that drew it, on its device.
        row: its place there.
    """

    ids: Tensor
    row: int


@dataclass(slots=True, eq=False)
class Sequence:
    """A request's prompt, its answer so far, the memory it holds and where its time went.

    Attributes:
        computed: positions whose keys and values are in memory.
        max_tokens: tokens it may generate, after the context's limit.
        key: what its pages are called in the prefix cache.
        needs: its pictures, for the scheduler's and the encoder's planning.
        blocks: half-open ranges of positions that attend to each other both ways; no chunk cuts
            one.
        arrival: its place in the order of all requests; set when it is added.
        holding: its pages; None while it waits.
        cached_tokens: positions that it found in the prefix cache; None until it first ran.
        media: encoder rows ``[n, W]`` of the pictures that the present chunk needs, by item.
        latest: the token that was drawn last; None before the first.
        started: clock reading at arrival, in seconds.
        is_refused: its error is what it asked for, and no fault of the engine.
    """

    prompt: Prompt
    params: SamplingParams
    positions: Positions
    sampling: SamplingState
    detokenizer: Detokenizer
    max_tokens: int
    started: float
    key: PrefixKey
    needs: tuple[MediaItem, ...] = ()
    blocks: Seq[tuple[int, int]] = ()
    arrival: int = 0
    timings: Timings = field(default_factory=Timings)
    holding: Holding | None = None
    computed: int = 0
    cached_tokens: int | None = None
    media: dict[int, Tensor] = field(default_factory=dict)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    latest: Drawn | None = None
    finish: FinishReason | None = None
    error: str | None = None
    is_refused: bool = False

    @property
    def output_ids(self) -> list[int]:
        """Generated tokens that have arrived; the list that the sampler's penalties read."""
        return self.sampling.output_ids

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt.ids)

    @property
    def known(self) -> int:
        """Tokens of prompt and answer whose ids the host has."""
        return len(self.prompt.ids) + len(self.output_ids)

    @property
    def length(self) -> int:
        """Tokens of prompt and answer together, pending ones included."""
        return len(self.prompt.ids) + self.sampling.drawn

    @property
    def capacity(self) -> int:
        """Tokens it may grow to."""
        return len(self.prompt.ids) + self.max_tokens

    @property
    def is_full(self) -> bool:
        """Whether no token may follow those that were drawn."""
        return self.sampling.drawn >= self.max_tokens

    def pend(self, drawn: Drawn) -> None:
        """A token was drawn; its id comes later."""
        self.sampling.pending += 1
        self.latest = drawn

    def take(self, token: int) -> None:
        """Append the oldest pending token to the answer."""
        self.sampling.pending -= 1
        self.output_ids.append(token)
        self.key.extend((token,))

    def forget_pending(self) -> None:
        """Pending tokens are not wanted, nor what was computed of them."""
        self.sampling.pending = 0
        self.computed = min(self.computed, self.length - 1)

    def ids(self, start: int, end: int) -> list[int]:
        """Token ids at positions ``[start, end)``; all of them are known."""
        n = len(self.prompt.ids)
        if end <= n:
            return self.prompt.ids[start:end]
        return self.prompt.ids[start:] + self.output_ids[max(start - n, 0) : end - n]

    def position_columns(self, start: int, end: int) -> np.ndarray:
        """Rope positions ``[R, end - start]``: the prompt's own, then counting on from its end."""
        prompt, n = self.positions.prompt, len(self.prompt.ids)
        if end <= n:
            return prompt[:, start:end]
        after = np.arange(max(start - n, 0), end - n, dtype=np.int64) + self.positions.next
        generated = np.broadcast_to(after, (prompt.shape[0], len(after)))
        return np.concatenate([prompt[:, start:], generated], axis=1) if start < n else generated
