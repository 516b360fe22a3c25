"""What is judged of a run, each with its number: reached, missed, or not measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PREFILL_SIZES = ("256", "512", "1024", "1500")
"""Tokens of prompts with a picture whose time to first token is judged."""


@dataclass(frozen=True, slots=True)
class Target:
    """One line of the verdict.

    Attributes:
        value: what was measured; None if it was not.
        limit: what it is held against; ``most`` says whether it is the most that is allowed.
        note: where the value comes from, e.g. the size that was worst.
    """

    name: str
    value: float | None
    limit: float
    most: bool = True
    note: str = ""

    @property
    def verdict(self) -> str:
        """``reached``, ``missed`` or ``not measured``."""
        if self.value is None:
            return "not measured"
        good = self.value <= self.limit if self.most else self.value >= self.limit
        return "reached" if good else "missed"

    def __str__(self) -> str:
        shown = "" if self.value is None else f" {self.value:.3g}"
        note = f" ({self.note})" if self.note else ""
        word = "at most" if self.most else "at least"
        return f"{self.verdict:12} {self.name}:{shown}, {word} {self.limit:g}{note}"


def targets(parts: Mapping[str, Mapping[str, Any]], modes: tuple[str, ...]) -> list[Target]:
    """The verdict of a run.

    Args:
        parts: its results by part.
        modes: names of the engines that capture; each is judged.
    """
    return [target for mode in modes for target in _of(parts, mode)]


def _of(parts: Mapping[str, Mapping[str, Any]], mode: str) -> Iterator[Target]:
    ttft = _table(parts, "prefill, picture", "ttft_ms")
    step = _table(parts, "decode", "step_ms")
    share = _table(parts, "replay", "replay")
    capture = parts.get("capture", {}).get("engines", {}).get(mode, {})
    covered = parts.get("coverage", {}).get("share", {}).get(mode)
    judged = {size: row for size, row in ttft.items() if size in PREFILL_SIZES}
    yield _worst(f"{mode}: first token after a picture, over eager", judged, _over(mode), 0.75)
    yield _worst(f"{mode}: decode step, over eager", step, _over(mode), 0.5)
    yield _worst(
        f"{mode}: replay, over its kernels' own time", share, lambda row: row.get(mode), 1.05
    )
    seconds = capture.get("default_seconds")
    yield Target(f"{mode}: seconds to capture the default buckets", seconds, 15)
    yield Target(f"{mode}: share of prefills with a picture by graph", covered, 0.95, most=False)


def _table(parts: Mapping[str, Mapping[str, Any]], part: str, key: str) -> dict[str, Any]:
    rows = parts.get(part, {}).get(key, {})
    return {size: row for size, row in rows.items() if isinstance(row, Mapping)}


def _over(mode: str) -> Callable[[Mapping[str, Any]], float | None]:
    def ratio(row: Mapping[str, Any]) -> float | None:
        eager, found = row.get("eager"), row.get(mode)
        return found / eager if found is not None and eager else None

    return ratio


def _worst(
    name: str,
    rows: Mapping[str, Any],
    value: Callable[[Mapping[str, Any]], float | None],
    limit: float,
) -> Target:
    found = {size: v for size, row in rows.items() if (v := value(row)) is not None}
    if not found:
        return Target(name, None, limit)
    size = max(found, key=lambda s: found[s])
    others = ", ".join(f"{s}: {v:.2f}" for s, v in found.items() if s != size)
    return Target(name, found[size], limit, note=f"at {size}" + (f"; {others}" if others else ""))
