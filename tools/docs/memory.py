"""Resident memory of whole engines, from the file that ``python -m benchmarks.memory`` wrote."""

from __future__ import annotations

from typing import Any

from tools.docs.markdown import table
from tools.docs.measured import not_yet, read, where

_COLUMNS = (
    "model", "weights", "KV pool", "buffers", "resident after start", "peak of answers",
    "peak over the three", "pool full: peak", "over the three",
)  # fmt: skip


def memory() -> str:
    """MiB of each model: what the engine says it needs, and what was resident."""
    results = read("memory.json")
    if results is None:
        return not_yet("python -m benchmarks.memory", "memory.json")
    rows = [_row(row) for row in results["rows"]]
    return f"{where(results['about'])} In MiB:\n\n{table(_COLUMNS, rows)}"


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    start, limit = row["start"], row["ratio"]
    kind = row["dtype"] if row["quantization"] == "none" else row["quantization"]
    return (
        f"{row['name']}, {kind}",
        _mib(start["weights_bytes"]),
        _mib(row["kv_bytes"]),
        _mib(start["buffers_bytes"]),
        _mib(start["now_bytes"]),
        _mib(row["answers"]["peak_bytes"]),
        f"{limit:.2f}",
        _mib(row["full"]["peak_bytes"]),
        f"{row['ratio_full']:.2f}",
    )


def _mib(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:,.0f}"
