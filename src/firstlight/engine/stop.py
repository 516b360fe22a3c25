"""Finds stop strings in text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string is complete.

    The match and all that follows are dropped. Of several stop strings the one that is complete
    first counts, of those complete at the same character the longest; so the result does not depend
    on how the text was cut into pieces.

    Attributes:
        matched: the stop string that was found, or None.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that is certain to precede every stop string now."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        found = [(at + len(s), -len(s), s) for s in self._stops if (at := text.find(s)) >= 0]
        if found:
            end, _, self.matched = min(found)
            self._held = ""
            return text[: end - len(self.matched)]
        size = self._beginning(text)
        self._held = text[len(text) - size :]
        return text[: len(text) - size]

    def finish(self) -> str:
        """What was held back; no more text will come."""
        held, self._held = self._held, ""
        return held

    def _beginning(self, text: str) -> int:
        """Characters at the end of ``text`` with which a stop string may begin."""
        longest = max(map(len, self._stops)) - 1
        for size in range(min(longest, len(text)), 0, -1):
            tail = text[len(text) - size :]
            if any(len(s) > size and s.startswith(tail) for s in self._stops):
                return size
        return 0
