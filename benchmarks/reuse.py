"""A prompt with a picture, and the same prompt again: what the caches save."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.generation import greedy, prompt_of
from benchmarks.interleave import Sample, interleave
from benchmarks.row import Row, compare
from firstlight import LLM
from firstlight.core.output import Completion
from firstlight.demo import pictures

TOKENS = 300
LIMIT = 0.2


def question(llm: LLM, picture: Path, tokens: int = TOKENS) -> list[dict[str, Any]]:
    """A conversation of about ``tokens`` tokens: one picture and a text."""

    def messages(text: str) -> list[dict[str, Any]]:
        parts = [{"type": "image", "image": str(picture)}, {"type": "text", "text": text}]
        return [{"role": "user", "content": parts}]

    empty = len(llm.parts.admission.chat(messages("a"), greedy(1)).prompt.ids)
    return messages(prompt_of(llm, tokens - empty)[0])


class Reuse:
    """Asks one question with empty caches and again, and remembers what the answers say."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._asked = question(llm, pictures()[0].path)
        self.answers: dict[str, Completion] = {}
        self.after_media: dict[str, list[float]] = {"ours": [], "theirs": []}

    def first(self, name: str = "theirs") -> float:
        """Seconds to the first token with empty caches."""
        self._llm.flush_caches()
        return self._ask(name)

    def repeat(self) -> float:
        """Seconds to the first token of the second time."""
        self.first("before")
        return self._ask("ours")

    def _ask(self, name: str) -> float:
        answer = self.answers[name] = self._llm.chat(self._asked, greedy(1))
        times = self.after_media.setdefault(name, [])
        times.append(answer.timings.ttft_s - answer.timings.media_s)
        return answer.timings.ttft_s

    def note(self) -> str:
        """Tokens of the prompt, and how many of them the repeat computed."""
        again = self.answers["ours"]
        computed = sum(step.tokens for step in again.timings.steps)
        return (
            f"{again.usage.prompt_tokens} tokens, {again.usage.image_tokens} of the picture; the "
            f"repeat finds {again.usage.cached_tokens} and computes {computed}; pages of "
            f"{self._llm.parts.memory.page_size}"
        )


def reuse_rows(dtype: str, *, rounds: int) -> Iterator[Row]:
    """Time to first token of a repeat, against that of the first time with empty caches.

    Once from the call on, reading and preparing the picture included, and once from the moment
    when the picture is prepared.
    """
    reuse = Reuse(LLM(dtype=dtype))
    samples = interleave({"ours": reuse.repeat, "theirs": reuse.first}, rounds=rounds)
    yield compare(f"first token of a repeat, {dtype}", samples, limit=LIMIT, note=reuse.note())
    later = {name: Sample(tuple(reuse.after_media[name][-rounds:])) for name in samples}
    yield compare(f"the same, once the picture is prepared, {dtype}", later, limit=LIMIT)
