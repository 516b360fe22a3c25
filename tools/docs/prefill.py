"""Where a prefill's time goes, from what ``scripts/bench prefill-profile --json`` wrote."""

from __future__ import annotations

from typing import Any

from tools.docs.markdown import pivot
from tools.docs.measured import not_yet, read, where

_LEAST = 0.004
"""The share from which on a kind of work has a line of its own, in some length."""
_OTHERS = "all others"
_WHOLE = "whole prefill"

Spent = dict[str, dict[str, tuple[float, float]]]
"""Milliseconds and share, by kind of work and length."""


def prefill() -> str:
    """Milliseconds and shares by kind of work and length of the prompt; linear layers together."""
    results = read("prefill.json")
    if results is None:
        return not_yet("scripts/bench prefill-profile", "prefill.json")
    spent = _spent(results["rows"])
    cells: dict[tuple[tuple[str, ...], str], str] = {}
    for kind in sorted(spent, key=lambda kind: _place(kind, spent)):
        for tokens, (ms, share) in spent[kind].items():
            cells[(kind,), f"{tokens} tokens: ms"] = f"{ms:.1f} ({share:.1%})"
    return f"{results['model']}; {where(results['about'])}\n\n{pivot(['work'], cells)}"


def _spent(lengths: dict[str, list[dict[str, Any]]]) -> Spent:
    """What takes next to nothing in every length is one kind."""
    large = {
        _kind(row["what"]) for rows in lengths.values() for row in rows if row["share"] >= _LEAST
    }
    spent: Spent = {}
    for tokens, rows in lengths.items():
        for row in rows:
            kind = _kind(row["what"])
            of = spent.setdefault(kind if kind in large else _OTHERS, {})
            ms, share = of.get(tokens, (0.0, 0.0))
            of[tokens] = ms + row["ms"], share + row["share"]
    return spent


def _kind(what: str) -> str:
    return "linear layers" if what.startswith("linear ") else what


def _place(kind: str, spent: Spent) -> tuple[bool, bool, float]:
    """Most time first, then what is left, the whole last."""
    return kind == _WHOLE, kind == _OTHERS, -max(ms for ms, _ in spent[kind].values())
