"""Which media items a chunk needs, and how far a chunk gets within the encoder's budget."""

from __future__ import annotations

from collections.abc import Sequence

from firstlight.engine.scheduling.request import EncoderCosts, MediaNeed


def media_end(needs: Sequence[MediaNeed]) -> int:
    """The position behind the last media row; 0 without media."""
    return max((span.end for need in needs for span in need.spans), default=0)


def first_overlap(need: MediaNeed, start: int, end: int) -> int | None:
    """The first position of the chunk ``[start, end)`` that a row of the item fills."""
    for span in need.spans:
        if span.start < end and span.end > start:
            return max(span.start, start)
    return None


class EncoderBudget:
    """Rows that one step may still have encoded; an item wanted twice is encoded once."""

    def __init__(self, costs: EncoderCosts, max_rows: int) -> None:
        self._costs = costs
        self._max_rows = max_rows
        self._spent = 0
        self._keys: set[str] = set()

    def reach(self, needs: Sequence[MediaNeed], start: int, end: int) -> int:
        """Where a chunk ``[start, end)`` has to end so that its media are within the budget.

        The first item of a step always is. Nothing is spent.
        """
        return self._walk(needs, start, end, self._spent, set())[0]

    def spend(self, needs: Sequence[MediaNeed], start: int, end: int) -> None:
        """Take the cost of a chunk that :meth:`reach` has allowed."""
        keys: set[str] = set()
        _, self._spent = self._walk(needs, start, end, self._spent, keys)
        self._keys |= keys

    def _walk(
        self, needs: Sequence[MediaNeed], start: int, end: int, spent: int, keys: set[str]
    ) -> tuple[int, int]:
        wanted = []
        for need in needs:
            at = first_overlap(need, start, end)
            if at is not None and need.key not in self._keys:
                wanted.append((at, need))
        wanted.sort(key=lambda item: item[0])
        for at, need in wanted:
            cost = 0 if need.key in keys else self._costs.cost(need)
            if spent and cost and spent + cost > self._max_rows:
                return at, spent
            spent += cost
            keys.add(need.key)
        return end, spent
