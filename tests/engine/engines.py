"""Engines over tiny checkpoints, and the comparison with transformers that all their tests make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from firstlight import LLM, SamplingParams
from firstlight.core.output import Completion
from firstlight.core.reason import Mode
from tests.oracle import Reference, oracle_generate

Part = str | Image.Image
Message = Mapping[str, Any]

GREEDY = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)


def tiny_llm(path: Path, **settings: Any) -> LLM:
    """An engine in float32 with few buckets, so that it starts quickly.

    Padding counts as free: tests say which step runs by graph, not how fast this machine is now.
    No prefix is reused unless a test asks for it: most look at what a step makes of a whole prompt.
    The memory is checked whenever the engine is idle.
    """
    defaults: dict[str, Any] = {
        "dtype": "float32",
        "max_num_seqs": 4,
        "page_size": 4,
        "padding_cost": "free",
        "prefix_cache": False,
        "debug": True,
    }
    if not settings.get("eager"):
        defaults["prefill_buckets"] = (16, 64, 128, 256, 512)
    return LLM(path, **{**defaults, **settings})


def user(*parts: Part) -> list[Message]:
    """One user turn; a model without pictures gets plain text."""
    if all(isinstance(part, str) for part in parts):
        return [{"role": "user", "content": " ".join(map(str, parts))}]
    content: list[dict[str, object]] = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": part}
        for part in parts
    ]
    return [{"role": "user", "content": content}]


def reference(llm: LLM, path: Path, parts: Sequence[Part], tokens: int = 32) -> Reference:
    """transformers' own answer to the same prompt."""
    prompt = llm.parts.admission.chat(user(*parts), GREEDY).prompt
    images = [part for part in parts if not isinstance(part, str)]
    return oracle_generate(path, prompt.ids, images, tokens)


def assert_same_ids(answer: Completion, expected: Reference) -> None:
    """Equal ids up to the first step that transformers itself decides by less than 1e-4."""
    n = min(expected.decided(), len(expected.greedy_ids))
    assert n >= 8, f"only {n} steps are clear; choose another seed"
    assert answer.token_ids[:n] == expected.greedy_ids[:n]


def assert_all_graph(answer: Completion) -> None:
    """Every step of the answer ran from a captured graph."""
    eager = [s.decision for s in answer.timings.steps if s.decision.mode is Mode.EAGER]
    assert eager == []


def first_logits(llm: LLM, parts: Sequence[Part]) -> torch.Tensor:
    """Float32 logits ``[V]`` at the end of the prompt, through the engine's own step."""
    seen: list[torch.Tensor] = []
    adapter = llm.parts.model.adapter
    plain = adapter.logits

    def listening(hidden: torch.Tensor) -> torch.Tensor:
        seen.append(plain(hidden))
        return seen[-1]

    adapter.logits = listening  # type: ignore[method-assign]
    try:
        llm.chat(user(*parts), SamplingParams(temperature=0, max_tokens=1))
    finally:
        del adapter.logits
    return seen[-1][-1].clone()
