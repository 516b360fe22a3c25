"""Many requests together against the same requests one at a time, on the bundled model."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.generation import greedy
from benchmarks.interleave import interleave, ratio
from benchmarks.row import Row, compare
from firstlight import LLM

REQUESTS = 16
TOKENS = 64
LIMIT = 0.25
"""Of the time together over the time apart: four times the tokens a second."""

_THINGS = ("red circle", "blue square", "green star", "two triangles")
_QUESTIONS = ("What colour is the", "Where is the", "How large is the", "Is there another")


def prompts() -> list[str]:
    """``REQUESTS`` different texts of about 40 tokens."""
    return [
        f"{question} {thing}? The {thing} is beside the {other} and above the rest of the picture."
        for question in _QUESTIONS
        for thing, other in zip(_THINGS, (*_THINGS[1:], _THINGS[0]), strict=True)
    ]


def concurrency_rows(dtype: str, *, rounds: int) -> Iterator[Row]:
    """Milliseconds per token, together and apart.

    The prefix cache is off: the rounds repeat the same prompts, which it would answer for both.
    """
    llm = LLM(dtype=dtype, max_num_seqs=REQUESTS, prefix_cache=False)
    texts, params = prompts(), greedy(TOKENS)
    total = len(texts) * TOKENS
    decoded: dict[str, float] = {}

    def together() -> float:
        answers = llm.generate(texts, params)
        decoded["together"] = max(a.timings.decode_s for a in answers) / (TOKENS - 1)
        return max(answer.timings.total_s for answer in answers) / total

    def apart() -> float:
        answers = [llm.generate(text, params) for text in texts]
        decoded["apart"] = sum(a.timings.decode_s for a in answers) / len(texts) / (TOKENS - 1)
        return sum(answer.timings.total_s for answer in answers) / total

    samples = interleave({"ours": together, "theirs": apart}, rounds=rounds)
    times = ratio(samples["theirs"], samples["ours"])
    note = (
        f"{times:.1f}x the tokens/s; decode step {decoded['together'] * 1e3:.2f} ms together, "
        f"{decoded['apart'] * 1e3:.2f} ms apart"
    )
    name = f"a token of {REQUESTS} requests together, {dtype}"
    yield compare(name, samples, limit=LIMIT, note=note)
