"""What the sampler remembers of one request between its steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from firstlight.core.sampling_params import SamplingParams
from firstlight.sampling.grammar import Grammar

_SEED_RANGE = 1 << 64  # torch's generators take 64 bits


@dataclass(slots=True, eq=False)
class SamplingState:
    """One request as the sampler sees it; the engine appends to ``output_ids``.

    Attributes:
        prompt_ids: the expanded prompt; only the repetition penalty reads it.
        output_ids: tokens generated so far.
        eos_token_ids: the model's own end tokens.
        generator: source of this request's draws; by default one of its own if it has a seed. It
            moves by one draw per sampled token, so neighbours in a batch change nothing.
        grammar: the form that the answer must have; it follows ``output_ids`` by itself.
        pending: tokens that were drawn behind ``output_ids`` and have not been taken yet.
    """

    params: SamplingParams
    prompt_ids: Sequence[int] = ()
    output_ids: list[int] = field(default_factory=list)
    eos_token_ids: Sequence[int] = ()
    generator: torch.Generator | None = None
    grammar: Grammar | None = None
    pending: int = 0
    _counts: Counter[int] = field(default_factory=Counter)
    _counted: int = 0
    _prompt_set: frozenset[int] | None = None
    _marks: tuple[tuple[int, torch.Tensor], ...] = ()

    def __post_init__(self) -> None:
        if self.generator is None and self.params.seed is not None:
            self.generator = torch.Generator().manual_seed(self.params.seed % _SEED_RANGE)

    @property
    def drawn(self) -> int:
        """Tokens generated so far, pending ones included."""
        return len(self.output_ids) + self.pending

    @property
    def follows_tokens(self) -> bool:
        """Whether which tokens came before, and not only how many, decides what may come next."""
        params = self.params
        return (
            self.grammar is not None
            or params.repetition_penalty != 1
            or params.presence_penalty != 0
            or params.frequency_penalty != 0
        )

    def mark(self) -> None:
        """Remember where the draws are, before the next token is drawn.

        The mark before it is kept as well: its token may be pending still.
        """
        if self.generator is not None:
            self._marks = (*self._marks[-1:], (self.drawn, self.generator.get_state()))

    def rewind(self) -> None:
        """Steps were lost: what is drawn next is what was drawn behind ``output_ids`` before."""
        for drawn, state in self._marks:
            if self.generator is not None and drawn == len(self.output_ids):
                self.generator.set_state(state)

    def output_counts(self) -> Counter[int]:
        """Occurrences of each generated token; costs only the tokens that are new."""
        if self._counted > len(self.output_ids):  # the engine took tokens back
            self._counts.clear()
            self._counted = 0
        self._counts.update(self.output_ids[self._counted :])
        self._counted = len(self.output_ids)
        return self._counts

    def seen_ids(self) -> set[int] | frozenset[int]:
        """Distinct tokens of prompt and output."""
        if self._prompt_set is None:
            self._prompt_set = frozenset(self.prompt_ids)
        return self._prompt_set | self.output_counts().keys()

    def suppressed_ids(self) -> list[int]:
        """Tokens that would end the request before ``min_tokens``.

        ``ignore_eos`` does not suppress anything: the end token may be generated, and the engine
        goes on after it.
        """
        params = self.params
        if self.drawn >= params.min_tokens:
            return []
        eos = () if params.ignore_eos else self.eos_token_ids
        return sorted({*eos, *params.stop_token_ids})
