"""Steps by threads and neighbours, from the file that ``scripts/bench threads --json`` wrote."""

from __future__ import annotations

from tools.docs.markdown import pivot
from tools.docs.measured import not_yet, read, where


def threads() -> str:
    """Milliseconds of a replay: models and batches by threads, alone and beside a busy process."""
    results = read("threads.json")
    if results is None:
        return not_yet("scripts/bench threads", "threads.json")
    cells: dict[tuple[tuple[str, ...], str], str] = {
        (
            (row["model"], row["batch"]),
            f"{row['threads']} beside {row['beside']}: ms",
        ): f"{row['ms']:.3g}"
        for row in results["rows"]
    }
    return f"{where(results['about'])}\n\n{pivot(['model', 'batch'], cells)}"
