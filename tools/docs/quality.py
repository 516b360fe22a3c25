"""What fewer bits cost, from the file that ``scripts/bench quality --json`` wrote."""

from __future__ import annotations

from typing import Any

from tools.docs.markdown import table
from tools.docs.measured import not_yet, read, where


def quality() -> str:
    """Three tables under the machine, commit and date they were made on."""
    results = read("quality.json")
    if results is None:
        return not_yet("scripts/bench quality", "quality.json")
    parts = [where(results["about"])]
    if "text" in results:
        parts += [*_text(results["text"], results["python_docs"]), *_greedy(results["greedy"])]
    parts += _pictures(results["pictures"])
    return "\n\n".join(parts)


def _text(text: dict[str, Any], python: str) -> list[str]:
    rows = [
        (
            row["format"],
            f"{row['perplexity']:.3f}",
            f"{row['top1_bfloat16']:.1%}",
            f"{row['kl_bfloat16']:.4f}",
            f"{row['top1_float32']:.1%}",
            f"{row['kl_float32']:.4f}",
        )
        for row in text["rows"]
    ]
    header = (
        *("weights", "perplexity", "same first choice as bfloat16", "KL from bfloat16"),
        *("same as float32", "KL from float32"),
    )
    said = (
        f"SmolLM2-135M-Instruct, Q4_1 file, over the first {text['tokens']:,} tokens of the "
        f"reference pages that Python {python} brings (`pydoc_data.topics`), in windows of "
        f"{text['window']}:"
    )
    return [said, table(header, rows)]


def _greedy(rows: list[dict[str, Any]]) -> list[str]:
    said = f"The same file, {rows[0]['answers']} questions, {rows[0]['of']} greedy tokens each:"
    header = ("weights", "MiB of weights", "answers as in bfloat16", "tokens before a difference")
    cells = [
        (
            row["format"],
            _mib(row["weight_bytes"]),
            f"{row['answers_equal']} of {row['answers']}",
            f"{row['ids_before_a_difference']:g} on average",
        )
        for row in rows
    ]
    return [said, table(header, cells)]


def _pictures(rows: list[dict[str, Any]]) -> list[str]:
    said = (
        "The bundled model, whose weights never were codes, asked about held-out pictures "
        f"({rows[0]['asked']} questions):"
    )
    header = ("weights", "MiB of weights", "exactly right", "answers as in bfloat16")
    cells = [
        (
            row["format"],
            _mib(row["weight_bytes"]),
            f"{row['right'] / row['asked']:.1%}",
            f"{row['as_bfloat16'] / row['asked']:.1%}",
        )
        for row in rows
    ]
    return [said, table(header, cells)]


def _mib(n: int) -> str:
    return f"{n / (1 << 20):.1f}"
