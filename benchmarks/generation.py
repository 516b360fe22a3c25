"""Prefill and decode of whole requests, against transformers' ``generate`` on the same weights."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.interleave import interleave
from benchmarks.reference import Reference
from benchmarks.row import Row, compare
from firstlight import LLM, SamplingParams
from firstlight.media import decode_image, load_image

WORDS = "a red circle is left of the blue square and two green stars are on top "


def prompt_of(llm: LLM, tokens: int) -> tuple[str, list[int]]:
    """Text of about ``tokens`` tokens, and its ids."""
    tokenizer = llm.parts.model.tokenizer
    ids = tokenizer(WORDS * tokens)["input_ids"][:tokens]
    text = tokenizer.decode(ids)
    return text, tokenizer(text)["input_ids"]


def greedy(n: int) -> SamplingParams:
    """Exactly ``n`` greedy tokens."""
    return SamplingParams(temperature=0, max_tokens=n, ignore_eos=True)


def decode_row(
    llm: LLM, reference: Reference, name: str, *, limit: float, rounds: int, tokens: int = 48
) -> Row:
    """Time per token after the first, one request; ids must agree for the row to mean anything."""
    text, ids = prompt_of(llm, 64)
    found: dict[str, tuple[int, ...]] = {}

    def ours() -> float:
        answer = llm.generate(text, greedy(tokens))
        found["ours"] = answer.token_ids
        return (answer.timings.total_s - answer.timings.ttft_s) / (tokens - 1)

    def theirs() -> float:
        out, times = reference.generate(reference.inputs(ids), tokens)
        found["theirs"] = tuple(out)
        return statistics.median(times[1:])

    samples = interleave({"ours": ours, "theirs": theirs}, rounds=rounds)
    same = sum(a == b for a, b in zip(found["ours"], found["theirs"], strict=True))
    return compare(name, samples, limit=limit, note=f"{same}/{tokens} ids equal")


def prefill_rows(llm: LLM, reference: Reference, dtype: str, *, rounds: int) -> Iterator[Row]:
    """Time to first token of text prompts."""
    for tokens in (100, 200, 300):
        text, ids = prompt_of(llm, tokens)

        def ours(text: str = text) -> float:
            return llm.generate(text, greedy(1)).timings.ttft_s

        def theirs(ids: list[int] = ids) -> None:
            reference.generate(reference.inputs(ids), 1)

        samples = interleave({"ours": ours, "theirs": theirs}, rounds=rounds)
        yield compare(f"prefill {len(ids)} tokens, {dtype}", samples, limit=0.8)


def picture_row(llm: LLM, reference: Reference, picture: Path, dtype: str, *, rounds: int) -> Row:
    """Time to first token of a question about a picture, reading and preparing it included."""
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [
                {"type": "image", "image": str(picture)},
                {"type": "text", "text": "Describe the picture."},
            ],
        }
    ]
    prompt = llm.parts.admission.chat(messages, greedy(1)).prompt
    processor = llm.parts.model.image_processor
    assert processor is not None

    def ours() -> float:
        return llm.chat(messages, greedy(1)).timings.ttft_s

    def theirs() -> None:
        artifact = processor.artifact(decode_image(load_image(str(picture))))
        reference.generate(reference.inputs(prompt.ids, artifact.tensors), 1)

    samples = interleave({"ours": ours, "theirs": theirs}, rounds=rounds)
    return compare(f"picture and question, {len(prompt.ids)} tokens, {dtype}", samples)
