"""What the scheduler needs to know of a request, and of the encoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from firstlight.core.span import Span

if TYPE_CHECKING:
    from firstlight.memory.holding import Holding
    from firstlight.memory.prefix_key import PrefixKey


class MediaNeed(Protocol):
    """One media item of a prompt."""

    @property
    def key(self) -> str:
        """What the encoder's rows are cached by; equal items have equal keys."""
        ...

    @property
    def rows(self) -> int:
        """Rows that the encoder makes of it."""
        ...

    @property
    def spans(self) -> Sequence[Span]:
        """The prompt positions that it fills, ascending; at least one span."""
        ...


class EncoderCosts(Protocol):
    """The encoder, as far as the budget of a step goes."""

    def cost(self, need: MediaNeed, /) -> int:
        """Rows that have to be encoded for this item now: 0 if they are cached."""
        ...


class Schedulable(Protocol):
    """One request. It must be hashable by identity, as a dataclass with ``eq=False`` is.

    Attributes:
        holding: its pages while it runs, else None. The scheduler's to write.
        computed: positions whose keys and values are in memory. The scheduler's to write.
    """

    holding: Holding | None
    computed: int

    @property
    def length(self) -> int:
        """Tokens of prompt and answer so far; at least one."""
        ...

    @property
    def prompt_length(self) -> int:
        """Tokens of the prompt."""
        ...

    @property
    def capacity(self) -> int:
        """Tokens that prompt and answer may grow to."""
        ...

    @property
    def key(self) -> PrefixKey:
        """Keys of its pages; it knows the tokens of the answer as well."""
        ...

    @property
    def needs(self) -> Sequence[MediaNeed]:
        """Media items of the prompt."""
        ...

    @property
    def blocks(self) -> Sequence[tuple[int, int]]:
        """Half-open ranges of prompt positions, ascending and apart, that attend to each other in
        both directions: no chunk begins or ends inside one. Empty for a causal model.
        """
        ...

    @property
    def arrival(self) -> int:
        """Its place in the order of arrival; smaller is served first."""
        ...
