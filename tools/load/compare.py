"""Is an answer under load the one that its request gets alone?"""

from __future__ import annotations

from dataclasses import dataclass

from tools.load.answer import Answer, Choice, Entry

CLOSE = 1e-4
"""How far log probabilities may lie apart: float32 sums of another batch's shape round otherwise.
Text, tokens and reasons of the end have no such room."""


@dataclass(slots=True)
class Spread:
    """The largest difference of log probabilities that was seen."""

    most: float = 0.0

    def difference(self, alone: Answer, got: Answer) -> str | None:
        """What differs, in words; None if nothing does."""
        if len(alone.choices) != len(got.choices):
            return f"{len(got.choices)} choices instead of {len(alone.choices)}"
        if got.tokens is not None and got.tokens != alone.tokens:
            return f"{got.tokens} tokens of prompt and answer instead of {alone.tokens}"
        for i, (one, other) in enumerate(zip(alone.choices, got.choices, strict=True)):
            found = self._choice(one, other)
            if found is not None:
                return f"choice {i}: {found}"
        return None

    def _choice(self, alone: Choice, got: Choice) -> str | None:
        if (alone.text, alone.finish) != (got.text, got.finish):
            return f"{got.text!r} ({got.finish}) instead of {alone.text!r} ({alone.finish})"
        if len(alone.logprobs) != len(got.logprobs):
            return f"{len(got.logprobs)} log probabilities instead of {len(alone.logprobs)}"
        for one, other in zip(alone.logprobs, got.logprobs, strict=True):
            if one[0][0] != other[0][0]:
                return f"token {other[0][0]!r} instead of {one[0][0]!r}"
            rivals = _ordered(one[1]), _ordered(other[1])
            pairs = [(one[0], other[0]), *zip(*rivals, strict=False)]
            if len(one[1]) != len(other[1]) or not all(self._close(a, b) for a, b in pairs):
                return f"log probabilities {other} instead of {one}"
        return None

    def _close(self, one: Entry, other: Entry) -> bool:
        apart = abs(one[1] - other[1])
        self.most = max(self.most, apart)
        return apart <= CLOSE


def _ordered(rivals: tuple[Entry, ...]) -> list[Entry]:
    """By their value: which of two equal ones comes first is rounding."""
    return sorted(rivals, key=lambda entry: -entry[1])
