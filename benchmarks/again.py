"""An identical request again, against a decode step of the same engine.

What is left of a prompt that is cached is one row, so its first token should take no longer than
any later one: a step, and what a request costs beside it (tokens of its text, the copy of a page's
rows, the answer). Each round has a prompt of its own, asked once and then again several times; the
best first token and the best step among these are the round's figures.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks.generation import greedy
from benchmarks.interleave import Sample
from benchmarks.row import Row, compare
from firstlight import LLM
from firstlight.core.output import Completion
from firstlight.core.reason import Phase
from firstlight.demo import pictures

LIMIT = 1.1
LENGTHS = (128, 135, 300)
DECODED = 24
REPEATS = 6


def again_rows(
    llm: LLM, name: str, *, rounds: int, lengths: Sequence[int] = LENGTHS
) -> Iterator[Row]:
    """Texts of so many tokens: the first token from the call on, and the step that gave it."""
    rng = random.Random(7)
    for length in lengths:

        def ask(length: int = length) -> Callable[[], Completion]:
            text = _text(llm, length, rng)
            return lambda: llm.generate(text, greedy(DECODED))

        yield from _rows(f"{length} tokens, {name}", ask, rounds)


def again_picture_rows(llm: LLM, name: str, *, rounds: int) -> Iterator[Row]:
    """A question of 40 tokens about a picture, which is read and prepared each time."""
    rng = random.Random(8)

    def ask() -> Callable[[], Completion]:
        parts: list[dict[str, Any]] = [
            {"type": "image", "image": str(pictures()[0].path)},
            {"type": "text", "text": _text(llm, 40, rng)},
        ]
        return lambda: llm.chat([{"role": "user", "content": parts}], greedy(DECODED))

    yield from _rows(f"a picture, {name}", ask, rounds)


def _rows(name: str, ask: Callable[[], Callable[[], Completion]], rounds: int) -> Iterator[Row]:
    first, step, decoded = list[float](), list[float](), list[float]()
    for _ in range(rounds):
        request = ask()
        request()
        answers = [request() for _ in range(REPEATS)]
        first.append(min(a.timings.ttft_s - a.timings.media_s for a in answers))
        step.append(min(a.timings.steps[0].seconds for a in answers))
        decoded.append(min(_decode_seconds(a) for a in answers))
    usage, decision = answers[-1].usage, answers[-1].timings.steps[0].decision
    left = usage.prompt_tokens - usage.cached_tokens
    note = f"{left} computed, {decision.phase.value} graph of {decision.bucket}"
    for what, ours, limit in (("first token", first, LIMIT), ("step alone", step, None)):
        samples = {"ours": Sample(tuple(ours)), "theirs": Sample(tuple(decoded))}
        yield compare(f"{what} of a repeat, {name}", samples, limit=limit, note=note)


def _decode_seconds(answer: Completion) -> float:
    steps = [s for s in answer.timings.steps[1:] if s.decision.phase is Phase.DECODE]
    return statistics.median(s.seconds for s in steps)


def _text(llm: LLM, tokens: int, rng: random.Random) -> str:
    """About ``tokens`` tokens that nobody has asked before."""
    words = ["red", "blue", "green", "circle", "square", "star", "left", "right", "large"]
    tokenizer = llm.parts.model.tokenizer
    ids = tokenizer(" ".join(rng.choices(words, k=tokens)))["input_ids"][:tokens]
    return str(tokenizer.decode(ids))
