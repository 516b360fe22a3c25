"""What is wrong in a report of ``firstlight inspect``: it is shown before everything else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_OUT_OF_USE = ("failed", "quarantined")


def faults(report: Mapping[str, Any]) -> list[dict[str, str]]:
    """One row for each graph that could not be captured or proved wrong, and for each declared
    input that no output depends on; empty where all is well.

    Args:
        report: the value of ``LLM.inspect()``; parts that are not there have no faults.
    """
    return [*_graphs(report), *_unread(report)]


def _graphs(report: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for phase, graphs in report.get("buckets", {}).items():
        for graph in graphs:
            if graph["state"] in _OUT_OF_USE:
                where = f"{phase} graph of {graph['size']} rows"
                yield {"where": where, "state": graph["state"], "why": graph["why"]}


def _unread(report: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for finding in report.get("unread_inputs") or ():
        yield {"where": "input contract", "state": "unread input", "why": finding}
